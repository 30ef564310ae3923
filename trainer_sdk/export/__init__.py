"""Models of checkpoints as files of other tools: `python -m trainer_sdk.export FOLDER model.safetensors`.

The problem: a checkpoint is made to continue a job, so a model lies in it beside optimisers and positions, in EDL's own
layout.  Who serves the model knows other files: `.safetensors`, PyTorch's `.pt`, NumPy's `.npz`.  Nothing of the job
has to run.  A training image has all that is needed; `edl export` finds the folder of a job and runs the same.

Not here: which checkpoint is the last (`master.api.checkpoints`), what training continues from (`group`, `pserver`).
"""
