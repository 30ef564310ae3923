"""Files and messages of a run: its folder, its records, the locks that it holds, the lines on its control socket."""
