"""The folder of a job's checkpoints, as `spec.checkpoint.uri` names it: refused where no pod could use it.

A relative path means another folder to each process that has another working directory, and a scheme that nothing
reads is met when the first checkpoint is due.  Which of these libraries are in the job's images is not known here.
"""

from __future__ import annotations

import re
from typing import Final

from autoscaler.manifests.pod_fields import format_value

SCHEMES: Final = (
    *("abfs", "adl", "az", "box", "dbfs", "dropbox", "ftp", "gcs", "gdrive", "gs", "hdfs", "hf", "lakefs", "oci"),
    *("oss", "s3", "s3a", "sftp", "smb", "ssh", "tos", "webdav", "webhdfs"),
)
"""Of fsspec's, those that are written to and that several machines share."""

CHECKPOINT_URI: Final = (
    rf"^(/|file://(localhost)?/|({'|'.join(SCHEMES)})://[^/\x00-\x20\x7f])([^\x00-\x1f\x7f]*[^\x00-\x20\x7f])?$"
)
"""The definition of TrainingJob has the same pattern."""

LONGEST_URI: Final = 2048
HINT: Final = "name a folder or store that all pods of the job reach, as in s3://bucket/digits or file:///shared/digits"


def check_checkpoint_uri(uri: str) -> str:
    """The URI, which is an absolute path, a file URI of this host or a store that fsspec knows; empty: none is named.

    Raises ValueError with what is wrong.
    """
    if not uri:
        return uri
    if len(uri) > LONGEST_URI:
        raise ValueError(f"has {len(uri)} characters, and {LONGEST_URI} is the most; {HINT}")
    if re.fullmatch(CHECKPOINT_URI, uri):
        return uri
    if not uri.strip():
        problem = "is blank"
    elif re.search(r"[\x00-\x1f\x7f]", uri) or uri != uri.strip():
        problem = f"{format_value(uri)} holds a control character, or a blank at an end"
    elif (scheme := re.match(r"([A-Za-z][A-Za-z0-9+.-]+):", uri)) is None:
        problem = f"{format_value(uri)} is relative, which is another folder to each pod"
    elif scheme[1] in {*SCHEMES, "file"}:
        problem = f"{format_value(uri)} names no folder: write {'file:///folder' if scheme[1] == 'file' else f'{scheme[1]}://bucket/folder'}"
    else:
        problem = f"{format_value(uri)} is of no store that EDL knows: {', '.join(SCHEMES)}"
    raise ValueError(f"{problem}; {HINT}")
