"""`edl` on a cluster: what is shown of its objects, and what each command writes."""

import re

import pytest

from autoscaler.cli.exit_codes import CommandError, Exit
from autoscaler.cli.kubernetes.cluster_place import conditions_of
from autoscaler.cli.kubernetes.live_replicas import live_replicas_of
from autoscaler.cli.output.formats import format_objects
from autoscaler.cli.output.object_tables import GrowingTable
from autoscaler.cli.place_values import JobFacts, LogOptions, PodSelector, SizeRequest
from autoscaler.clusters.kubernetes.api import kinds
from autoscaler.clusters.kubernetes.objects.labels import COMPARE, KEEP_UNTIL
from tests.unit.cli.kube_place import NAMESPACE, STATUS, node, raw_pod, stage, status


@pytest.fixture
def digits():
    """A job with two trainers on one node, a web pod beside it, and the place."""
    with stage() as (made, place):
        made.make(kinds.NODES, node())
        made.make_trainers(made.make_job(), 2)
        made.make(kinds.PODS, raw_pod("web-1", node="n1"))
        yield made, place


def test_keep_writes_until_when_a_pod_is_left_alone(digits):
    """It can be taken back, and names who is not there."""
    made, place = digits

    def kept():
        return made.server.get(kinds.PODS, NAMESPACE, "web-1")["metadata"]["annotations"].get(KEEP_UNTIL)

    assert re.fullmatch(r"pod/web-1 is kept until \d{4}-\d\d-\d\dT.*Z", place.keep_pod("web-1", 7200))
    assert place.keep_pod("web-1", 7200).endswith(kept())
    place.keep_pod("web-1", 0)
    assert kept() is None
    assert "web-9" in refused(Exit.NOT_FOUND, place.keep_pod, "web-9", 60)


def refused(code, call, *words, **fields):
    with pytest.raises(CommandError) as caught:
        call(*words, **fields)
    assert caught.value.code is code
    return caught.value.message


def table(place, kind, name="", output="table"):
    return format_objects(place.get(kind, name), output, is_single=bool(name)).splitlines()


@pytest.mark.parametrize("kind", ["TrainingJob", "Pod", "Deployment", "Node"])
@pytest.mark.parametrize("raw", [{}, {"status": None}, {"status": {}}, {"status": {"conditions": None}}])
def test_an_object_without_a_status_meets_no_condition(kind, raw):
    """`edl wait` goes on waiting for it: an API server may answer it before anybody has written one."""
    assert conditions_of({"kind": kind, **raw}) <= {""}


def test_tables_of_a_cluster(digits):
    """Jobs as `kubectl get tj` has them and what they aim at; nodes with what is taken of them; everybody's pods."""
    _, place = digits
    heading, row = table(place, "tj")
    assert heading.split()[:9] == [
        "NAME",
        "TRAINERS",
        "TARGET",
        "MIN",
        "MAX",
        "SERVERS",
        "PROGRESS",
        "CHECKPOINT",
        "REASON",
    ]
    assert row.split()[:7] == ["digits", "2", "3", "2", "8", "-", "25.0%"]
    assert row.split()[7].endswith("d"), "the age of its last checkpoint"
    assert row.split()[8] == "NodeFit"
    assert table(place, "trainingjobs", "digits", "wide")[1].endswith("n1 is full")
    assert table(place, "nodes")[1].split()[:6] == ["n1", "Ready", "3/8", "3Gi/32Gi", "-", "3/110"]
    pods = {line.split()[0]: line.split()[1:5] for line in table(place, "pod")[1:]}
    assert pods["digits-trainer-1"] == ["Running", "trainer", "core", "n1"]
    assert pods["web-1"] == ["Running", "-", "-", "n1"]
    assert table(place, "tj", f"{NAMESPACE}/digits", "name") == ["trainingjob/digits"]
    assert table(place, "deployments") == ["nothing there"]


def test_all_namespaces_say_which():
    """With -A a column more, and things of everywhere."""
    with stage(is_all_namespaces=True) as (made, place):
        made.make(kinds.PODS, raw_pod("web-1", namespace="default", node="n1"))
        assert table(place, "pods")[1].split()[:2] == ["default", "web-1"]


def test_a_misspelt_name_is_answered(digits):
    """With what is near, and where it was looked for."""
    _, place = digits
    assert "in namespace team-a; did you mean digits?" in refused(Exit.NOT_FOUND, place.get, "tj", "digit")
    assert "known here: tj, node" in refused(Exit.USAGE, place.get, "foo", "")
    assert "no deployment at all" in refused(Exit.NOT_FOUND, place.get, "deployment", "web")


def test_describe_answers_why_first(digits):
    """State, sizes, the bottleneck, progress; then pods, resizes and events."""
    made, place = digits
    made.make(kinds.EVENTS, event("Scaled", "from 2 to 3"))
    text = "\n".join(place.describe("tj", "digits"))
    assert "State:       Ready; " in text
    assert "Trainers:    2 ready, 3 wanted (2 to 8 allowed): 2 core" in text
    assert "Why:         NodeFit: n1 is full" in text
    assert "epoch 1 of 3, 1,500 of 6,000 samples committed, 25.0%, checkpoint " in text
    assert text.index("Why:") < text.index("Pods:") < text.index("Resizes:") < text.index("Events:")
    assert "2 -> 3     growth by edl  room" in text
    assert "web-1" not in text


@pytest.mark.parametrize(
    ("condition", "line"),
    [
        (("Progressing", "False", "Problem"), "Training:    Problem: so"),
        (("Progressing", "Unknown", "MasterUnreachable"), "Training:    MasterUnreachable: so"),
        (("CheckpointsCurrent", "False", "CommitFails"), "Checkpoints: CommitFails: so"),
        (("CheckpointsCurrent", "False", "NotActive"), ""),
        (("Progressing", "True", "Training"), ""),
    ],
)
def test_describe_shows_what_keeps_a_job_from_training_and_from_checkpoints(condition, line):
    """It was told by kubectl alone: whoever asked `edl` saw a job that was well."""
    kind, truth, reason = condition
    with stage() as (made, place):
        made.make_job(told=status({"type": kind, "status": truth, "reason": reason}))
        lines = [one for one in place.describe("tj", "digits") if one.startswith(("Training:", "Checkpoints:"))]
    assert lines == ([line] if line else [])


def test_describe_shows_what_a_master_tells_of_a_job_that_trains():
    """Data that differ, and trainers that hang: the job goes on, and its Progressing is true."""
    message = "phase of the master: training; t0 and t1 have read other data at position 4"
    with stage() as (made, place):
        made.make_job(told=status({"type": "Progressing", "status": "True", "reason": "Training", "message": message}))
        lines = [one for one in place.describe("tj", "digits") if one.startswith("Training:")]
    assert lines == ["Training:    t0 and t1 have read other data at position 4"]


def test_replicas_are_compared_by_a_request_that_the_status_answers():
    """The last comparison, if none is made in time; why the job has failed where they differ; nothing of other jobs."""
    last = {"step": 8, "trainers": 2, "digest": "d8", "request": "an older one"}
    group = {"group": {"globalBatch": 32}}
    with stage() as (made, place):
        made.make_job(told=status(progress=STATUS["progress"] | {"replicas": last}), **group)
        late = place.compare_replicas("digits", budget_s=0)
        request = made.get(kinds.TRAINING_JOBS, "digits")["metadata"]["annotations"][COMPARE]
        assert (late.step, late.is_answer, late.is_settled) == (8, False, False)
        assert late.line == (
            "after step 8 the replicas of 2 trainers are the same, digest d8, the last comparison; "
            "no newer one was made in time"
        )
    answer = live_replicas_of({"status": {"progress": {"replicas": last | {"request": request}}}}, request)
    assert answer.is_settled
    assert answer.content == {"step": 8, "trainers": 2, "digest": "d8", "is_fresh": True, "problem": ""}
    with stage() as (made, place):
        failed = {"type": "Failed", "status": "True", "message": "replicas differ: w is not the same at t0 and t1"}
        made.make_job(told=status(failed), **group)
        assert "w is not the same" in place.compare_replicas("digits", budget_s=60).problem
        made.make_job("shares")
        assert "no group" in refused(Exit.USAGE, place.compare_replicas, "shares", budget_s=0)


def test_describe_tells_the_step_and_the_last_pause_of_a_group():
    """And nothing of steps where trainers share out data or use servers."""
    progress = STATUS["progress"] | {
        "step": 483,
        "steps": 1380,
        "samplesPerSecond": 4200,
        "resizePauseMilliseconds": 83,
        "replicas": {"step": 480, "trainers": 4, "digest": "d"},
    }
    with stage() as (made, place):
        made.make_job(told=status(progress=progress))
        text = "\n".join(place.describe("tj", "digits"))
    line = "Group:       step 483 of 1,380, the last resize paused it for 83 ms, 4 equal replicas at step 480"
    assert line in text
    assert "25.0%, 4,200 samples/s, checkpoint" in text
    with stage() as (made, place):
        made.make_job(told=status())
        assert "Group:" not in "\n".join(place.describe("tj", "digits"))


def test_describe_shows_no_progress_before_a_data_set_is_declared():
    """A job that starts trains nothing: no "epoch 0 of 0"."""
    with stage() as (made, place):
        made.make_job(told=status(progress={"epoch": 0, "epochs": 0, "samplesCommitted": 0, "samplesTotal": 0}))
        assert "Progress:" not in "\n".join(place.describe("tj", "digits"))


def test_describe_says_for_how_long_a_job_has_waited():
    """As its operators kept it; suspended time is not in it."""
    for told, words in (
        ({"waitingSince": "2026-01-02T03:03:05Z"}, ", has waited for free capacity for "),
        ({}, " old\n"),
    ):
        with stage() as (made, place):
            made.make_job(told=status(**told))
            text = "\n".join(place.describe("tj", "digits"))
        state = next(line for line in text.splitlines() if line.startswith("State:"))
        assert words in f"{state}\n"


def test_describe_says_what_other_number_of_servers_would_be_better():
    """While it trains: a share of time that was measured before says nothing of a job that stands still."""
    measured = {
        "servers": {"ready": 2, "target": 2},
        "progress": {**STATUS["progress"], "waitingPercent": 50},
    }
    for is_training in (True, False):
        with stage() as (made, place):
            told = status({"type": "Progressing", "status": str(is_training)}, **measured)
            made.make_job(told=told, server={"minReplicas": 2, "maxReplicas": 4})
            hints = [line for line in place.describe("tj", "digits") if line.startswith("Hint:")]
        told = "Hint:        trainers wait for servers 50% of their time; 4 in place of 2: at most +33%"
        assert hints == ([told] if is_training else [])


@pytest.mark.parametrize(
    ("spec", "told", "words"),
    [
        (
            {"minReplicas": 1, "maxReplicas": 4, "trainersPerServer": 2},
            {},
            "(1 to 4 allowed, one for every 2 trainers)",
        ),
        ({"minReplicas": 1, "maxReplicas": 4, "replicas": 3}, {}, "(pinned to 3 of 1 to 4)"),
        ({"minReplicas": 1, "maxReplicas": 1}, {}, "1 ready, 2 wanted (always 1)"),
        ({"minReplicas": 1, "maxReplicas": 1}, {"leaving": 1}, "; 1 is leaving"),
        ({"minReplicas": 1, "maxReplicas": 1}, {"draining": 2}, "; 2 are draining"),
    ],
)
def test_describe_tells_how_many_servers_and_why(spec, told, words):
    """Pinned, fixed, and while their share of the model is on its way."""
    with stage() as (made, place):
        made.make_job(told=status(servers={"ready": 1, "target": 2, **told}), server=spec)
        (line,) = [line for line in place.describe("tj", "digits") if line.startswith("Servers:")]
    assert line.endswith(words)


def test_a_server_that_is_draining_is_still_there():
    """It serves until what it holds has been moved: wanted and present are told apart while a job shrinks."""
    with stage() as (made, place):
        made.make_job(told=status(servers={"ready": 3, "target": 2, "draining": 1}), server={"maxReplicas": 3})
        heading, row = table(place, "tj")
    assert row.split()[heading.split().index("SERVERS")] == "3/2"


def test_a_job_without_servers_says_nothing_of_them(digits):
    """No zeros that mean nothing; and no line is longer than a terminal."""
    _, place = digits
    lines, _, _ = "\n".join(place.describe("tj", "digits")).partition("Pods:")
    assert "Servers:" not in lines
    assert max(map(len, lines.splitlines())) <= 100
    heading, row = table(place, "tj")
    assert row[heading.index("SERVERS")] == "-"


def test_every_kind_has_a_table(digits):
    """Nothing that can be asked for is without columns."""
    made, place = digits
    made.make(kinds.DEPLOYMENTS, {"metadata": {"name": "web", "namespace": NAMESPACE}, "spec": {"replicas": 1}})
    for kind in ("tj", "node", "pod", "deployment"):
        assert len(table(place, kind, output="wide")) >= 2


def test_a_watched_table_stays_aligned(digits):
    """A short name after a long one keeps its columns."""
    _, place = digits
    found, lines = place.get("pod", ""), GrowingTable(is_wide=False)
    heading, first = lines.add(found.objects[0], found.columns)
    (second,) = lines.add(found.objects[-1], found.columns)
    assert heading.index("STATUS") == first.index("Running") == second.index("Running")


def test_describe_says_that_a_ratio_is_measured():
    with stage() as (made, place):
        made.make_job(
            told=status(servers={"ready": 2, "target": 2, "trainersPerServer": 3}),
            server={"maxReplicas": 4, "trainersPerServer": "auto"},
        )
        text = "\n".join(place.describe("tj", "digits"))
    assert (
        "Servers:     2 ready, 2 wanted (1 to 4 allowed, one for every 3 trainers, "
        "as measured by how long trainers wait for them)" in text
    )


@pytest.mark.parametrize(("single_copies", "words"), [(0, "2 copies of each bucket"), (9, "9 buckets have one copy")])
def test_describe_tells_copies(single_copies, words):
    with stage() as (made, place):
        servers = {"ready": 2, "target": 2, "copies": 2, "singleCopies": single_copies}
        made.make_job(told=status(servers=servers), server={"maxReplicas": 2, "minReplicas": 2, "copies": 2})
        text = "\n".join(place.describe("tj", "digits"))
    assert f"Servers:     2 ready, 2 wanted (always 2); {words}" in text


def test_describe_counts_buckets_in_transit():
    with stage() as (made, place):
        servers = {"ready": 2, "target": 2, "movingBuckets": 9}
        made.make_job(told=status(servers=servers), server={"maxReplicas": 2, "minReplicas": 2})
        text = "\n".join(place.describe("tj", "digits"))
    assert "Servers:     2 ready, 2 wanted (always 2); 9 buckets are moving" in text


def test_a_job_that_no_operator_has_seen_says_so():
    """In place of zeros that nobody has counted."""
    with stage() as (made, place):
        made.make_job(told=None)
        text = "\n".join(place.describe("tj", "digits"))
    assert "no operator has reconciled it yet" in text
    assert "ready" not in text


def event(reason, note, *, kind="TrainingJob", name="digits", at="2026-01-02T03:05:05.000000Z"):
    return {
        "metadata": {"name": f"{name}.{reason.lower()}", "namespace": NAMESPACE},
        "eventTime": at,
        "reason": reason,
        "note": note,
        "regarding": {"kind": kind, "name": name, "namespace": NAMESPACE},
    }


def test_events_are_those_of_jobs_in_order(digits):
    """Of the jobs and their pods, gone ones too; other people's are left out."""
    made, place = digits
    made.make(kinds.EVENTS, event("Late", "b", at="2026-01-02T03:06:05Z"))
    made.make(kinds.EVENTS, event("Killing", "a", kind="Pod", name="digits-trainer-7"))
    made.make(kinds.EVENTS, event("Pulled", "c", kind="Pod", name="web-1"))
    told = [one.text.split(" ago  ")[1] for one in place.events(is_watching=False)]
    assert [line.split() for line in told] == [["pod/digits-trainer-7", "Killing", "a"], ["tj/digits", "Late", "b"]]


def test_logs_by_role_and_number(digits):
    """The master that leads, the first trainer, or the one of a number; whole characters across chunks."""
    made, place = digits
    for name, ready in (("digits-master-a", "True"), ("digits-master-b", "False")):
        labels = {"edl.dev/job": "digits", "edl.dev/role": "master"}
        told = {"conditions": [{"type": "Ready", "status": ready}]}
        made.make(kinds.PODS, raw_pod(name, node="n1", labels=labels, status=told))
    made.server.logs[NAMESPACE, "digits-master-b"] = [b"leads\n"]
    made.server.logs[NAMESPACE, "digits-trainer-1"] = ["é\n".encode()[:1], "é\n".encode()[1:]]
    assert "".join(place.log("tj", "digits", PodSelector(role="master"), LogOptions())) == "leads\n"
    assert "".join(place.log("tj", "digits", PodSelector(ordinal=1), LogOptions())) == "é\n"
    assert "".join(place.log("pod", "digits-trainer-1", PodSelector(), LogOptions(tail=0))) == ""
    assert "tj/digits has no trainer 9 now; trainers that it has: 0, 1" in refused(
        Exit.NOT_FOUND, lambda: list(place.log("tj", "digits", PodSelector(ordinal=9), LogOptions()))
    )
    assert "no server now" in refused(
        Exit.NOT_FOUND, lambda: list(place.log("tj", "digits", PodSelector(role="server"), LogOptions()))
    )


def test_watching_tells_each_change_once(digits):
    """What stands, then what comes; and refuses what is not there."""
    made, place = digits
    changes = place.watch("tj", "digits")
    assert next(changes).objects[0]["status"]["reason"] == "NodeFit"
    place.scale("tj", "digits", [SizeRequest(field="trainers", count=5)], is_dry=False)
    assert next(changes).objects[0]["spec"]["trainer"]["replicas"] == 5
    place.delete("tj", "digits", is_dry=False)
    assert next(changes).objects[0]["metadata"]["name"] == "digits"
    made.make_job("other")
    assert "did you mean" in refused(Exit.NOT_FOUND, lambda: next(place.watch("tj", "othr")))
    news = place.events(is_watching=True)
    made.make(kinds.EVENTS, event("Gone", "of a job that was there"))
    made.make(kinds.EVENTS, event("Started", "begins", name="other"))
    assert "Gone" in next(news).text
    assert "Started" in next(news).text


def test_what_wait_waits_for(digits):
    """Conditions by their types, and by the names that runs have; a failed job never completes."""
    made, place = digits
    assert place.is_condition_met("tj", "digits", "ready")
    assert place.is_condition_met("tj", "digits", "running")
    assert not place.is_condition_met("tj", "digits", "completed")
    assert place.is_condition_met("pod", "digits-trainer-0", "ready")
    assert place.is_condition_met("tj", "gone", "delete")
    assert not place.is_condition_met("tj", "digits", "delete")
    made.make_job("bad", status({"type": "Failed", "status": "True", "message": "6 failures in a row"}))
    assert "6 failures in a row" in refused(Exit.FAILED, place.is_condition_met, "tj", "bad", "completed")


def test_scale_pins_a_job_through_its_scale(digits):
    """What may not be is refused before it is written; a dry run writes nothing."""
    made, place = digits
    four = [SizeRequest(field="trainers", count=4)]
    told = "tj/digits scaled to 4 trainers (2 now); replaces the resize to 3: 2 of 3 present"
    assert place.scale("tj", "digits", four, is_dry=True) == f"{told} (dry run)"
    assert "replicas" not in made.get(kinds.TRAINING_JOBS, "digits")["spec"]["trainer"]
    assert place.scale("tj", "digits", four, is_dry=False) == told
    assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["trainer"]["replicas"] == 4
    nine, three = [SizeRequest(field="trainers", count=9)], [SizeRequest(field="replicas", count=3)]
    assert "may have 2 to 8 trainers" in refused(Exit.REFUSED, place.scale, "tj", "digits", nine, is_dry=False)
    assert "--trainers N" in refused(Exit.USAGE, place.scale, "tj", "digits", three, is_dry=False)


def test_scale_pins_servers_in_the_spec():
    """Within their bounds; a job without servers has no tables either."""
    with stage() as (made, place):
        made.make_job(server={"maxReplicas": 3, "trainersPerServer": 2})
        made.make_job("bare")
        two, four = [SizeRequest(field="servers", count=2)], [SizeRequest(field="servers", count=4)]
        assert place.scale("tj", "digits", two, is_dry=False) == "tj/digits scaled to 2 servers (0 now)"
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2
        ours = [SizeRequest(field="servers", count=0)]
        assert (
            place.scale("tj", "digits", ours, is_dry=True) == "tj/digits: EDL decides the number of servers (dry run)"
        )
        assert "spec.parameterServer.replicas: tj/digits may have 1 to 3 servers" in refused(
            Exit.REFUSED, place.scale, "tj", "digits", four, is_dry=False
        )
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2
        assert "tj/bare has no parameter servers" in refused(Exit.REFUSED, place.scale, "tj", "bare", two, is_dry=False)


def test_both_sizes_are_set_by_one_write():
    """Or none of them, when one cannot be."""
    with stage() as (made, place):
        made.make_job(server={"maxReplicas": 3, "trainersPerServer": 2})
        before = made.get(kinds.TRAINING_JOBS, "digits")
        too_many = [SizeRequest(field="trainers", count=4), SizeRequest(field="servers", count=9)]
        assert "may have 1 to 3 servers" in refused(Exit.REFUSED, place.scale, "tj", "digits", too_many, is_dry=False)
        assert made.get(kinds.TRAINING_JOBS, "digits") == before
        both = [SizeRequest(field="trainers", count=4), SizeRequest(field="servers", count=2)]
        assert [line.split(" (")[0] for line in place.scale("tj", "digits", both, is_dry=False).splitlines()] == [
            "tj/digits scaled to 4 trainers",
            "tj/digits scaled to 2 servers",
        ]
        spec = made.get(kinds.TRAINING_JOBS, "digits")["spec"]
        assert (spec["trainer"]["replicas"], spec["parameterServer"]["replicas"]) == (4, 2)


def test_a_second_resize_is_told_what_it_replaces():
    """What the operator saw last, and what was asked for since."""
    with stage() as (made, place):
        made.make_job(told=status(servers={"ready": 3, "target": 3, "draining": 1}), server={"maxReplicas": 4})
        two, four = [SizeRequest(field="servers", count=2)], [SizeRequest(field="servers", count=4)]
        assert place.scale("tj", "digits", four, is_dry=False) == (
            "tj/digits scaled to 4 servers (2 now); replaces the resize to 3: 2 of 3 present, "
            "1 terminating; pods and buckets that are already moving finish first"
        )
        assert "replaces the resize to 4: 2 of 4 present" in place.scale("tj", "digits", two, is_dry=False)
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2


class Overtaken:
    """A server on which somebody else asks for 4 servers just before the first write."""

    def __init__(self, api):
        self._api = api
        self._rivals = [{"spec": {"parameterServer": {"replicas": 4}}}]

    def __getattr__(self, name):
        return getattr(self._api, name)

    async def patch(self, kind, name, change, **options):
        while self._rivals:
            await self._api.patch(kind, name, self._rivals.pop(), namespace=options["namespace"])
        return await self._api.patch(kind, name, change, **options)


def test_a_resize_that_comes_between_look_and_write_is_told_too():
    """The write goes to what was looked at: else it is looked at again."""
    with stage(wrap=Overtaken) as (made, place):
        made.make_job(told=status(servers={"ready": 3, "target": 3}), server={"maxReplicas": 4})
        told = place.scale("tj", "digits", [SizeRequest(field="servers", count=2)], is_dry=False)
        assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["parameterServer"]["replicas"] == 2
    assert "replaces the resize to 4: 3 of 4 present" in told


def test_describe_tells_servers_that_go():
    """Ready ones among them: they serve until what they hold has been moved."""
    with stage() as (made, place):
        made.make_job(
            told=status(servers={"ready": 3, "target": 2, "draining": 1, "leaving": 1}), server={"maxReplicas": 4}
        )
        text = "\n".join(place.describe("tj", "digits"))
        assert table(place, "tj")[1].split()[5] == "3/2"
    assert "3 ready, 2 wanted (1 to 4 allowed, one for every 4 trainers); 1 is draining; 1 is leaving" in text


def test_describe_tells_both_roles():
    """How many servers there are, how many there shall be, and what decides it; resizes say whose they are."""
    resizes = [STATUS["resizes"][0], STATUS["resizes"][0] | {"role": "server", "from": 1, "to": 2}]
    with stage() as (made, place):
        told = status(servers={"ready": 1, "target": 2}, resizes=resizes)
        made.make_job(told=told, server={"maxReplicas": 3, "trainersPerServer": 2})
        text = "\n".join(place.describe("tj", "digits"))
        assert table(place, "tj")[1].split()[5] == "1/2"
    assert "Servers:     1 ready, 2 wanted (1 to 3 allowed, one for every 2 trainers)" in text
    assert "2 -> 3     growth" in text
    assert "1 -> 2     servers: growth" in text


def test_drain_tells_one_pod_to_leave_within_its_own_grace(digits):
    """Nothing else is touched."""
    made, place = digits
    assert "dry run" in place.drain("tj", "digits", PodSelector(role="trainer", ordinal=1), is_dry=True)
    assert (
        place.drain("tj", "digits", PodSelector(role="trainer", ordinal=1), is_dry=False)
        == "pod/digits-trainer-1 is draining"
    )
    leaving = made.get(kinds.PODS, "digits-trainer-1")
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == leaving["spec"]["terminationGracePeriodSeconds"]
    assert "deletionTimestamp" not in made.get(kinds.PODS, "digits-trainer-0")["metadata"]
    assert "scaled, not drained" in refused(Exit.USAGE, place.drain, "deployment", "web", PodSelector(), is_dry=False)


def test_a_node_is_drained_of_edls_pods_and_opened_again(digits):
    """By the label that the planner reads; kubectl's cordon is not touched."""
    made, place = digits
    place.drain("node", "n1", PodSelector(), is_dry=False)
    assert made.get(kinds.NODES, "n1", None)["metadata"]["labels"] == {"edl.dev/drain": "true"}
    assert table(place, "node")[1].split()[1] == "Ready,Draining"
    assert place.uncordon("node", "n1") == "node/n1 is open"
    assert not made.get(kinds.NODES, "n1", None)["metadata"].get("labels")


def test_what_no_plan_knows_of_a_job():
    """It has ended, when, and why; its ratio is measured."""
    with stage() as (made, place):
        made.make_job(told=status(), server={"maxReplicas": 4, "trainersPerServer": "auto"})
        ended = {"type": "Failed", "status": "True", "message": "6 failures in a row"}
        made.make_job("bad", status(ended, completionTime="2026-01-02T03:04:05Z"))
        assert place.job_facts("digits") == JobFacts(is_ratio_measured=True)
        assert re.fullmatch("Failed [0-9]+d ago: 6 failures in a row", place.job_facts("bad").ended)
        assert place.job_facts("none") == JobFacts()


def test_suspend_resume_and_delete(digits):
    """Of jobs that are not over."""
    made, place = digits
    assert place.set_suspended("tj", "digits", is_suspended=True) == "tj/digits suspended"
    assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["runPolicy"] == {"suspend": True}
    four = [SizeRequest(field="trainers", count=4)]
    assert "the job is suspended: the size applies" in place.scale("tj", "digits", four, is_dry=False)
    assert made.get(kinds.TRAINING_JOBS, "digits")["spec"]["trainer"]["replicas"] == 4
    assert place.set_suspended("tj", "digits", is_suspended=False) == "tj/digits resumed"
    made.make_job("old", status({"type": "Completed", "status": "True"}))
    assert "is Completed" in refused(Exit.REFUSED, place.set_suspended, "tj", "old", is_suspended=True)
    assert "would be deleted" in place.delete("tj", "old", is_dry=True)
    assert place.delete("tj", "old", is_dry=False) == "tj/old is being deleted"
    refused(Exit.NOT_FOUND, place.get, "tj", "old")
    assert "edl drain node/NAME" in refused(Exit.USAGE, place.delete, "node", "n1", is_dry=False)
