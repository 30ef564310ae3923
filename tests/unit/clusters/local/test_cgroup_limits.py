"""Limits of control groups, from the texts of systems as they are: containers, services, both versions."""

import pytest

from autoscaler.clusters.local.machine.cgroup_limits import (
    CGROUPS,
    MOUNTS,
    CgroupLimits,
    find_folders,
    find_limits,
    parse_cpu_max,
    parse_memory_max,
)

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "32 31 0:29 {root} /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"
    "35 31 0:32 {root} /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "38 31 0:35 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
IN_DOCKER = "4:memory:/docker/ab12\n3:cpu,cpuacct:/docker/ab12\n1:name=systemd:/docker/ab12\n0::/system.slice/docker\n"


@pytest.mark.parametrize(
    ("text", "milli"),
    [
        ("200000 100000\n", 2000),
        ("50000 100000", 500),
        ("150000 50000", 3000),
        ("100", 1),
        ("max 100000\n", None),
        ("-1 100000", None),
        ("", None),
        ("many few", None),
        ("100000 0", 1000),
    ],
)
def test_cores_are_the_quota_in_a_period(text, milli):
    """And what is no limit, or no number, limits nothing."""
    assert parse_cpu_max(text) == milli


@pytest.mark.parametrize(("text", "size"), [("1073741824\n", 1 << 30), ("max\n", None), ("", None), ("-1", None)])
def test_memory_is_a_number_of_bytes(text, size):
    """`max` limits nothing."""
    assert parse_memory_max(text) == size


def test_a_container_with_a_namespace_of_its_own_finds_its_limits():
    """It sees its group as the root (Docker and Kubernetes with cgroup v2)."""
    files = {CGROUPS: "0::/\n", MOUNTS: V2}
    files |= {"/sys/fs/cgroup/cpu.max": "150000 100000\n", "/sys/fs/cgroup/memory.max": "536870912\n"}
    assert find_limits(files.get) == CgroupLimits(cpu_milli=1500, memory_bytes=512 << 20)


def test_the_smallest_limit_of_a_group_and_those_above_holds():
    """A service of systemd has its own limit and its slice's."""
    files = {CGROUPS: "0::/batch.slice/train.service\n", MOUNTS: V2}
    files |= {
        "/sys/fs/cgroup/batch.slice/train.service/cpu.max": "400000 100000",
        "/sys/fs/cgroup/batch.slice/cpu.max": "300000 100000",
        "/sys/fs/cgroup/batch.slice/train.service/memory.max": "max",
        "/sys/fs/cgroup/batch.slice/memory.max": "1000",
    }
    assert find_limits(files.get) == CgroupLimits(cpu_milli=3000, memory_bytes=1000)


def test_version_1_has_a_hierarchy_for_each_controller():
    """Also beside an empty one of version 2, and where the mount shows the container's part alone."""
    cpu, memory = "/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/memory"
    files = {
        CGROUPS: IN_DOCKER,
        MOUNTS: V1.format(root="/docker/ab12"),
        f"{cpu}/cpu.cfs_quota_us": "250000\n",
        f"{cpu}/cpu.cfs_period_us": "100000\n",
        f"{memory}/memory.limit_in_bytes": "2147483648\n",
    }
    assert find_limits(files.get) == CgroupLimits(cpu_milli=2500, memory_bytes=2 << 30)
    assert find_folders("memory", IN_DOCKER, V1.format(root="/"))[:3] == (
        memory,
        f"{memory}/docker",
        f"{memory}/docker/ab12",
    )
    files[f"{cpu}/cpu.cfs_quota_us"] = "-1\n"
    assert find_limits(files.get).cpu_milli is None


def test_a_system_without_control_groups_has_no_limits():
    """Nor has one whose files are of another form."""
    assert find_limits({}.get) == CgroupLimits()
    assert find_limits({CGROUPS: "nonsense", MOUNTS: "- cgroup\nx - cgroup2 y z\n"}.get) == CgroupLimits()
