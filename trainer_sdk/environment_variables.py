"""Published list of the environment variables of a job's processes, version 1.

The operator, or any other program that starts a trainer or a parameter server, sets these variables; a process reads no
others.  ENVIRONMENT_VERSION is raised when a variable changes its meaning or a new one must not be ignored; a process
refuses a version that it does not know.  A variable that may be ignored can be added within a version.

`docs/environment.md` is made from `VARIABLES` (`python -m trainer_sdk.environment_variables`), and a test holds it to
that.  Not here: how a process reads them (`environment`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Final

ENVIRONMENT_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    name: str
    readers: str  # who reads it
    meaning: str
    default: str = ""  # as readers see it; empty: none
    example: str = ""


VARIABLES: Final = (
    Variable(
        name="EDL_ENV_VERSION",
        readers="all",
        meaning="version of this list; another one is refused",
        default="1",
        example="1",
    ),
    Variable(
        name="EDL_JOB",
        readers="all",
        meaning="name of the job; both ends of every connection must agree on it",
        default="local",
        example="digits",
    ),
    Variable(name="EDL_ROLE", readers="all", meaning="trainer, server or master", default="trainer", example="trainer"),
    Variable(
        name="EDL_NAME",
        readers="all",
        meaning="name of the pod, unique in its job",
        default="JOB-ROLE-ORDINAL",
        example="digits-trainer-2",
    ),
    Variable(
        name="EDL_ORDINAL",
        readers="trainer, server",
        meaning="number of the pod within its role; not its rank",
        default="0",
        example="2",
    ),
    Variable(
        name="EDL_MASTER",
        readers="trainer, server",
        meaning="the job's master, host:port or unix:PATH; a script without it starts a master of its own",
        default="none",
        example="127.0.0.1:7070",
    ),
    Variable(
        name="EDL_GRACE_S",
        readers="trainer, server",
        meaning="seconds between SIGTERM and SIGKILL, 0 for none; a process ends min(2 s, a quarter of it) earlier",
        default="30",
        example="10",
    ),
    Variable(
        name="EDL_TIER",
        readers="trainer",
        meaning="core or surplus, fixed when the pod is created; for the script's information",
        default="core",
        example="surplus",
    ),
    Variable(
        name="EDL_CHECKPOINT_URI",
        readers="trainer, server, master",
        meaning="folder of the job's checkpoints: a path, file:///path, or a URI that fsspec knows",
        default="none: nothing is kept",
        example="file:///var/lib/edl/digits",
    ),
    Variable(
        name="EDL_CHECKPOINT_EVERY_S",
        readers="master",
        meaning="seconds between checkpoints",
        default="60",
        example="60",
    ),
    Variable(
        name="EDL_CHECKPOINT_START",
        readers="master, a script that runs alone",
        meaning="checkpoint to start from if the folder cannot be read: a manifest's id, or `fresh`",
        default="none: HEAD in the folder decides",
        example="000001-0000000012-000007-5f3a9c21",
    ),
    Variable(
        name="EDL_WHEN_UNREADABLE",
        readers="master, a script that runs alone",
        meaning="Fail, or FallBack: resume from the newest intact checkpoint if the last cannot be read",
        default="Fail",
        example="FallBack",
    ),
    Variable(
        name="EDL_TOKEN_FILE",
        readers="all",
        meaning="file with the job's shared secret, used for mutual proof and never sent",
        default="none: no secret required",
        example="/run/edl/token",
    ),
    Variable(
        name="EDL_TLS_DIR",
        readers="all",
        meaning=(
            "folder with ca.crt, tls.crt and tls.key; every connection of the job is then mutual TLS, "
            "and the master's certificate names the host of EDL_MASTER"
        ),
        default="none: plain connections",
        example="/run/edl/tls",
    ),
    Variable(
        name="EDL_LISTEN",
        readers="server, master, trainer of a group",
        meaning=(
            "host:port to listen at, port 0: any; or unix:PATH in a folder of mode 0700; "
            "for a server and a trainer the folder alone suffices"
        ),
        default="server and trainer: any port of the address that it uses towards the master, master 127.0.0.1:0",
        example="0.0.0.0:7071",
    ),
    Variable(
        name="EDL_ADVERTISE",
        readers="server, trainer of a group",
        meaning="host at which trainers reach it",
        default="the address that it uses towards the master",
        example="10.1.2.3",
    ),
    Variable(
        name="EDL_GROUP",
        readers="trainer, master",
        meaning="`1`: the job is a group: every trainer holds the model, and all make each step together",
        default="`0`",
        example="1",
    ),
    Variable(
        name="EDL_SHARES",
        readers="master",
        meaning="`Measured`: in a group, a trainer that computes more slowly gets fewer records of each step, between "
        "half and one and a half of an equal share; of spec.group.shares",
        default="`Equal`",
        example="Measured",
    ),
    Variable(
        name="EDL_GLOBAL_BATCH",
        readers="trainer of a group",
        meaning="records of one step of a group over all trainers, unless the script names a number itself",
        default="none",
        example="256",
    ),
    Variable(
        name="EDL_STANDBY",
        readers="master",
        meaning="`1`: wait for SIGUSR1, which reports that the previous master process is dead (ADR 0202)",
        default="`0`",
        example="1",
    ),
    Variable(
        name="EDL_PARENT_PID",
        readers="server, master",
        meaning="end when this process is no longer the parent",
        default="none",
        example="4711",
    ),
)


def environment_page() -> str:
    """The text of docs/environment.md."""
    rows = "\n".join(f"| `{v.name}` | {v.readers} | {v.meaning} | {v.default} | `{v.example}` |" for v in VARIABLES)
    return f"""# The environment of a pod, version {ENVIRONMENT_VERSION}

Made from `trainer_sdk/environment_variables.py` by
`python -m trainer_sdk.environment_variables > docs/environment.md`; a test compares.

| variable | read by | meaning | default | example |
|---|---|---|---|---|
{rows}

GPUs: `CUDA_VISIBLE_DEVICES` lists a trainer's GPUs, by UUID where EDL asked the driver.  The master's further settings
are in `master/process/master_config.py`; a job's owner may give them in `spec.master.template`.  A template with a
variable that EDL sets itself is refused, with the field of the spec to set instead
(`autoscaler/manifests/edl_variables.py`).

Skew: `EDL_ENV_VERSION` is raised when a variable changes its meaning or a new one must not be ignored; a process
refuses a version that it does not know.  Within a version variables may be added if ignoring them is harmless.  An
empty variable counts as unset.  `docs/guide.md` lists which versions of wire, data path and files go together.
"""


if __name__ == "__main__":
    sys.stdout.write(environment_page())
