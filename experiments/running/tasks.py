"""Which passes an experiment needs: every arm on every mix, variants on fewer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.arms.pass_setup import PassSetting
from experiments.scenarios.node_mixes import Mix
from experiments.scenarios.schema import ArmName, Scenario, VariantSpec

OWN_NODES = "own"  # the name of the mix of a scenario that names its nodes itself
SEED_STRIDE = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One pass.  `number` counts from 1."""

    setting: PassSetting
    number: int

    @property
    def mix(self) -> str:
        """The mix's name."""
        return OWN_NODES if self.setting.mix is None else self.setting.mix.name

    @property
    def arm(self) -> str:
        """The arm with its variant: `ours-planner+drain-10s`."""
        return self.setting.arm + (f"+{self.setting.variant}" if self.setting.variant else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The passes that the user selected; None: all, and as many as the scenario names."""

    seed: int = 1
    passes: int | None = None
    arm: str | None = None
    mix: str | None = None


def list_tasks(scenario: Scenario, mixes: Sequence[Mix], selection: Selection) -> list[Task]:
    """Return the passes, arm by arm."""
    choices: Sequence[Mix | None] = (None,) if scenario.nodes else mixes
    wanted: list[tuple[ArmName, VariantSpec | None]] = [(arm, None) for arm in scenario.arms]
    wanted += [(variant.arm, variant) for variant in scenario.variants]
    tasks = []
    for arm, variant in wanted:
        if selection.arm not in {None, name_arm(arm, variant)}:
            continue
        passes = scenario.passes if variant is None else variant.passes
        if selection.passes is not None:
            passes = min(passes, selection.passes)
        for mix in choices if variant is None else choices[: variant.mixes]:
            if selection.mix not in {None, OWN_NODES if mix is None else mix.name}:
                continue
            numbers = range(1, passes + 1)
            tasks += [make_task(scenario, mix, arm, variant, seed=selection.seed, number=n) for n in numbers]
    return tasks


def seed_of_run(seed: int, number: int) -> int:
    """Return the seed that the user gave, of a pass with this seed and number: see `make_task`."""
    return (seed - number) // SEED_STRIDE


def name_arm(arm: ArmName, variant: VariantSpec | None) -> str:
    """`ours-planner+drain-10s`."""
    return arm if variant is None else f"{arm}+{variant.name}"


def make_task(
    scenario: Scenario, mix: Mix | None, arm: ArmName, variant: VariantSpec | None, *, seed: int, number: int
) -> Task:
    """Return one pass; the same number has the same seed in every arm, so that all arms get the same random draws."""
    setting = PassSetting(
        scenario=scenario,
        mix=mix,
        arm=arm,
        variant="" if variant is None else variant.name,
        seed=seed * SEED_STRIDE + number,
        physics=scenario.physics if variant is None else variant.physics,
        policy=scenario.policy if variant is None else variant.policy,
    )
    return Task(setting=setting, number=number)
