"""Joining of a group: a process listens for the members, and registers with the master."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from master.api.checkpoints.storage import open_storage
from master.api.identities import DatasetSpec, Incarnation, MemberName
from master.api.wire.hello import Hello
from trainer_sdk.collective import CollectiveListener
from trainer_sdk.environment import Environment
from trainer_sdk.errors import UsageError
from trainer_sdk.group.core.member_state import MemberState
from trainer_sdk.group.member_runtime import MemberRuntime
from trainer_sdk.group.port import ComparableReplica, ReplicaState
from trainer_sdk.master_stream import MasterAddress
from trainer_sdk.specs import whole_number
from trainer_sdk.transport.security import Security


def join_group(
    environment: Environment,
    replica: ReplicaState,
    dataset: DatasetSpec,
    *,
    has_final_hook: bool,
    budget_s: float,
    check_alive: Callable[[], None],
) -> MemberRuntime:
    """The runtime of this process, which registers by itself from now on; `leave` it in any case.

    Raises UsageError when the environment is not that of a group's trainer, or its address cannot be listened on.
    """
    if not environment.is_group:
        raise UsageError(
            "replicate() or own_model(): this job is no group, so no other trainer would have this model. Set "
            "spec.group in the job's file, or start the script with `edl launch --group`"
        )
    if not environment.checkpoint_uri:
        raise UsageError(
            "EDL_CHECKPOINT_URI: a group needs a folder for checkpoints, else it begins anew once its last trainer "
            "is lost; set spec.checkpoint.uri"
        )
    incarnation = Incarnation(uuid.uuid4().hex[:12])
    listener = CollectiveListener(
        environment.listen,
        Security(token=environment.token.encode(), tls_folder=environment.tls_folder),
        incarnation,
        advertise=environment.advertise,
        master=environment.master,
    )
    state = MemberState(
        name=MemberName(environment.name),
        ordinal=environment.ordinal,
        incarnation=incarnation,
        address=listener.address,
        dataset=dataset,
        layout=replica.layout,
        has_final_hook=has_final_hook,
        can_compare=isinstance(replica, ComparableReplica),
    )
    try:
        return MemberRuntime(
            state,
            replica=replica,
            listener=listener,
            storage=open_storage(environment.checkpoint_uri),
            master=MasterAddress(
                target=environment.master,
                hello=Hello(job=environment.job, software="edl trainer"),
                token=environment.token,
                tls_dir=environment.tls_dir,
            ),
            master_budget_s=budget_s,
            check_alive=check_alive,
        )
    except BaseException:
        listener.close()
        raise


def global_batch_of(given: int | None, environment: Environment) -> int:
    """Records of a step: the script's number, or else the job's.  Raises UsageError without one."""
    if given is None and not environment.global_batch:
        raise UsageError(
            "global_batch: neither script nor job says how many records a step has; give global_batch=256, say, or set "
            "spec.group.globalBatch (EDL_GLOBAL_BATCH)"
        )
    return environment.global_batch if given is None else whole_number("global_batch", given)
