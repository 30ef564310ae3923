"""Checkpoint folder of a job: its files, their guarantees, and the checkpoint that a job resumes from.

`storage` opens a folder (`local_storage`, `remote_storage`); `manifest` is a checkpoint's own record;
`folder_contents` reads a folder; `resume` and `fallback` choose the checkpoint to resume from; `audit` and
`verification` report on a folder for people.
"""
