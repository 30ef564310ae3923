"""The small jobs that are explored: each combines a few faults, so that together they meet every rule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.protocol.settings import Faults, Setting

SMALL: Final = {"trainers": 1, "positions": 1}

PAIR: Final = {**SMALL, "buckets": 1, "copies": 2}

CONFIGS: Final[Mapping[str, Setting]] = {
    # name: two trainers, two servers, two positions, batches of one, unless it says otherwise
    "calm": Setting(),
    "loss": Setting(faults=Faults(loss=1)),
    "drain": Setting(faults=Faults(drain=1)),
    "deadline": Setting(faults=Faults(deadline=1)),
    "raise": Setting(faults=Faults(raising=1)),
    "trainer": Setting(faults=Faults(trainer_crash=1)),
    "one-trainer-servers": Setting(trainers=1, faults=Faults(server_crash=1)),
    "one-trainer-masters": Setting(trainers=1, faults=Faults(take_over=1)),
    "one-trainer-slow": Setting(trainers=1, is_slow=True, faults=Faults(server_crash=1)),
    "one-trainer-two-losses": Setting(trainers=1, positions=1, faults=Faults(server_crash=2)),
    "lineage": Setting(trainers=1, positions=1, faults=Faults(server_crash=1, take_over=1)),
    "pause": Setting(faults=Faults(pause=1)),
    "streams": Setting(faults=Faults(break_=1)),
    "servers": Setting(faults=Faults(server_crash=1)),
    "masters": Setting(faults=Faults(take_over=1)),
    "near-mark": Setting(has_near_mark=True, faults=Faults(take_over=1)),
    "near-mark-one-trainer": Setting(trainers=1, positions=3, has_near_mark=True, faults=Faults(take_over=1)),
    "near-mark-plain": Setting(servers=0, positions=3, has_near_mark=True, faults=Faults(trainer_crash=1, take_over=1)),
    "zombies": Setting(faults=Faults(zombie=1, take_over=1)),
    "repeats": Setting(faults=Faults(repeat=1, server_crash=1)),
    "quarantine": Setting(quarantine_after=1, faults=Faults(raising=1, pause=1)),
    "quarantine-masters": Setting(trainers=1, quarantine_after=1, faults=Faults(raising=1, take_over=1)),
    "quarantine-servers": Setting(
        trainers=1, positions=1, quarantine_after=1, faults=Faults(raising=1, server_crash=1)
    ),
    "cuts": Setting(positions=3, batches=(1, 2), faults=Faults(trainer_crash=1, pause=1)),
    "pipeline": Setting(positions=3, pipeline=2, faults=Faults(trainer_crash=1, loss=1)),
    "four": Setting(positions=4, faults=Faults(trainer_crash=1)),
    "epochs": Setting(epochs=2, trainers=1, faults=Faults(server_crash=1, loss=1)),
    "three-servers": Setting(servers=3, buckets=3, faults=Faults(trainer_crash=1)),
    "plain": Setting(servers=0, positions=3, faults=Faults(trainer_crash=1, pause=1)),
    "plain-masters": Setting(servers=0, positions=3, faults=Faults(trainer_crash=1, take_over=1)),
    "model": Setting(servers=0, trainers=1, positions=3, own_model=True, faults=Faults(trainer_crash=1, pause=1)),
    "model-masters": Setting(
        servers=0, trainers=1, positions=2, own_model=True, faults=Faults(trainer_crash=1, take_over=1)
    ),
    "model-two": Setting(servers=0, positions=2, own_model=True, faults=Faults(trainer_crash=1, pause=1)),
    "two-buckets": Setting(servers=1, buckets=2, faults=Faults(trainer_crash=1, server_crash=1)),
    # those that are left keep what they have (rule 30)
    "keep": Setting(keeps=True, faults=Faults(server_crash=1)),
    "keep-one-trainer": Setting(trainers=1, keeps=True, faults=Faults(server_crash=1)),
    "keep-twice": Setting(trainers=1, positions=1, keeps=True, faults=Faults(server_crash=2)),
    "keep-slow": Setting(trainers=1, is_slow=True, keeps=True, faults=Faults(server_crash=1)),
    "keep-late": Setting(**SMALL, keeps=True, loads_late=True, faults=Faults(server_crash=2)),
    "keep-late-three": Setting(
        **SMALL, servers=3, buckets=3, keeps=True, loads_late=True, faults=Faults(server_crash=2, break_=1)
    ),
    "keep-late-scale": Setting(**SMALL, keeps=True, loads_late=True, faults=Faults(wish=1, server_crash=2)),
    "keep-cuts": Setting(positions=3, batches=(1, 2), keeps=True, faults=Faults(server_crash=1)),
    "keep-masters": Setting(trainers=1, keeps=True, faults=Faults(server_crash=1, take_over=1)),
    "keep-streams": Setting(trainers=1, keeps=True, faults=Faults(server_crash=1, break_=1)),
    "keep-repeats": Setting(trainers=1, keeps=True, faults=Faults(server_crash=1, repeat=1)),
    "keep-loss": Setting(trainers=1, keeps=True, pipeline=2, faults=Faults(server_crash=1, loss=1)),
    "keep-trainers": Setting(keeps=True, faults=Faults(server_crash=1, trainer_crash=1)),
    "keep-three": Setting(trainers=1, servers=3, buckets=3, keeps=True, faults=Faults(server_crash=2)),
    "keep-quarantine": Setting(
        trainers=1, keeps=True, quarantine_after=1, faults=Faults(raising=1, server_crash=1, take_over=1)
    ),
    "keep-move": Setting(**SMALL, keeps=True, faults=Faults(move=1, server_crash=1)),
    "keep-move-twice": Setting(**SMALL, keeps=True, faults=Faults(move=2, server_crash=1)),
    "keep-move-three": Setting(**SMALL, servers=3, keeps=True, faults=Faults(move=1, server_crash=1)),
    "keep-leave": Setting(**SMALL, keeps=True, faults=Faults(leave=1, server_crash=1)),
    "keep-scale": Setting(**SMALL, keeps=True, faults=Faults(wish=1, server_crash=1)),
    "keep-scale-loss": Setting(**SMALL, begin=1, keeps=True, faults=Faults(wish=1, server_crash=1, deadline=1)),
    "keep-hasty": Setting(**SMALL, is_hasty=True, keeps=True, faults=Faults(move=1, server_crash=1)),
    # buckets that move: one trainer, one position, two servers, unless it says otherwise
    "move": Setting(**SMALL, buckets=1, faults=Faults(move=1)),
    "move-two-trainers": Setting(positions=2, buckets=1, faults=Faults(move=1)),
    "move-two-buckets": Setting(trainers=1, faults=Faults(move=1)),
    "move-there-back": Setting(**SMALL, buckets=1, faults=Faults(move=2)),
    "move-deadline": Setting(**SMALL, buckets=1, faults=Faults(move=2, deadline=2)),
    "move-crash": Setting(**SMALL, buckets=1, faults=Faults(move=1, server_crash=1)),
    "move-masters": Setting(**SMALL, buckets=1, faults=Faults(move=1, take_over=1)),
    "move-pause": Setting(**SMALL, buckets=1, faults=Faults(move=1, pause=1)),
    "move-warm": Setting(trainers=1, buckets=1, faults=Faults(move=1, warm=2, deadline=1)),
    "move-overtake": Setting(**SMALL, buckets=1, faults=Faults(move=1, deadline=1, overtake=2, repeat=1)),
    "move-late": Setting(**SMALL, buckets=1, faults=Faults(move=1, take_over=1, late=1)),
    "quarantine-late": Setting(**SMALL, quarantine_after=1, faults=Faults(raising=1, take_over=1, late=1)),
    "move-streams": Setting(**SMALL, buckets=1, faults=Faults(move=1, break_=1, loss=1)),
    "move-quarantine": Setting(**SMALL, buckets=1, quarantine_after=1, faults=Faults(move=1, raising=1)),
    "move-three": Setting(**SMALL, servers=3, buckets=1, faults=Faults(move=2)),
    "leave": Setting(**SMALL, faults=Faults(leave=1)),
    "leave-crash": Setting(**SMALL, faults=Faults(leave=1, server_crash=1)),
    "leave-masters": Setting(**SMALL, faults=Faults(leave=1, take_over=1)),
    "leave-both": Setting(**SMALL, faults=Faults(leave=2)),
    "scale-out": Setting(**SMALL, begin=1, faults=Faults(wish=1)),
    "scale-in": Setting(**SMALL, faults=Faults(wish=1)),
    "scale-twice": Setting(**SMALL, faults=Faults(wish=2)),
    "scale-crash": Setting(**SMALL, faults=Faults(wish=1, server_crash=1)),
    "scale-loss": Setting(**SMALL, begin=1, faults=Faults(wish=1, server_crash=1, deadline=1)),
    "scale-deadline": Setting(**SMALL, faults=Faults(wish=1, deadline=1)),
    "scale-masters": Setting(**SMALL, faults=Faults(wish=1, take_over=1)),
    # every bucket on two servers: one trainer, one position, one bucket, two servers, unless it says otherwise
    "pair": Setting(**PAIR),
    "pair-loss": Setting(**PAIR, faults=Faults(loss=2)),
    "pair-crash": Setting(**PAIR, faults=Faults(server_crash=1)),
    "pair-crashes": Setting(**PAIR, faults=Faults(server_crash=2)),
    "pair-pause": Setting(**PAIR, faults=Faults(break_=1, pause=1)),
    "pair-pause-crash": Setting(**PAIR, faults=Faults(break_=1, pause=1, server_crash=1)),
    "pair-masters": Setting(**PAIR, faults=Faults(take_over=1, deadline=1)),
    "pair-masters-crash": Setting(**PAIR, faults=Faults(take_over=1, server_crash=1)),
    "pair-positions": Setting(buckets=1, copies=2, faults=Faults(server_crash=1)),
    "pair-cuts": Setting(buckets=1, copies=2, batches=(1, 2), faults=Faults(trainer_crash=1)),
    "pair-quarantine": Setting(**PAIR, quarantine_after=1, faults=Faults(raising=1)),
    "pair-quarantine-crash": Setting(**PAIR, quarantine_after=1, faults=Faults(raising=1, server_crash=1)),
    "pair-quarantine-masters": Setting(**PAIR, quarantine_after=1, faults=Faults(raising=1, take_over=1)),
    "pair-two-buckets": Setting(**SMALL, copies=2, faults=Faults(server_crash=1)),
    "pair-move": Setting(**PAIR, servers=3, faults=Faults(move=1)),
    "pair-move-deadline": Setting(**PAIR, servers=3, faults=Faults(move=1, deadline=1)),
    "pair-move-crash": Setting(**PAIR, servers=3, faults=Faults(move=1, server_crash=1)),
    "pair-move-hasty": Setting(**PAIR, servers=3, is_hasty=True, faults=Faults(move=1)),
    "pair-three": Setting(**PAIR, servers=3, faults=Faults(server_crash=2)),
    "pair-leave": Setting(**PAIR, servers=3, faults=Faults(leave=1)),
    "pair-scale": Setting(**PAIR, faults=Faults(wish=1)),
    "pair-scale-out": Setting(**PAIR, begin=1, faults=Faults(wish=1)),
    "pair-keep": Setting(**SMALL, copies=2, keeps=True, faults=Faults(server_crash=2)),
    "pair-keep-three": Setting(**SMALL, servers=3, buckets=3, copies=2, keeps=True, faults=Faults(server_crash=2)),
    "hasty": Setting(**SMALL, buckets=1, is_hasty=True, faults=Faults(move=1)),
    "hasty-two-buckets": Setting(**SMALL, is_hasty=True, faults=Faults(move=1)),
    "hasty-two-positions": Setting(trainers=1, is_hasty=True, faults=Faults(move=1)),
    "hasty-masters": Setting(**SMALL, is_hasty=True, faults=Faults(move=1, take_over=1)),
    "hasty-quarantine": Setting(**SMALL, is_hasty=True, quarantine_after=1, faults=Faults(move=1, raising=1)),
}
