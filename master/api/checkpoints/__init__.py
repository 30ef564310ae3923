"""The checkpoint folder of a job: its files, what they promise, and what a job resumes from.

`storage` opens a folder (`local_storage`, `remote_storage`); `manifest` is a checkpoint's own record; `folder_contents`
reads what stands in a folder; `resume` and `fallback` choose what a job goes on from; `audit` and `verification` report
on a folder for people.
"""
