"""`edl.launch`: a function of a script or notebook as an elastic job of this machine.

The job is run by the command `edl launch` in another process, so that this package needs nothing of the cluster side.
`function_reference` names the function, `launched_function` runs it in a trainer, `launch_process` is the command's
process, `job_handle` what the caller gets.
"""
