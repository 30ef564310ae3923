"""The NVIDIA driver, through nvidia-ml-py: the only room that imports pynvml.

`nvml_door` reads a node within a deadline; `nvml_calls` makes one call each and turns every answer into a value;
`dcgm_door` reads a DCGM exporter instead;
`gpm_samples` keeps the sample that GPM compares with; `deadline` gives up a call that does not return.
"""
