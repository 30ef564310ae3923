"""Reviews of tokens and rights: a part of the contract that every adapter of `Api` keeps."""

import pytest

from autoscaler.cluster_page.reviews import (
    ReadRight,
    access_review,
    parse_access_review,
    parse_token_review,
    token_review,
)
from autoscaler.clusters.kubernetes.api.kinds import ACCESS_REVIEWS, CONFIG_MAPS, PODS, TOKEN_REVIEWS
from autoscaler.errors import ClusterError


@pytest.mark.asyncio
class Reviewing:
    """See `KubeApiContract`."""

    async def test_token_is_that_of_its_user(self, stage):
        token = await stage.user("one")
        viewer = parse_token_review(await stage.api.create(TOKEN_REVIEWS, token_review(token, ())), ())
        assert viewer is not None
        assert viewer.name.endswith("one")
        assert viewer.uid
        assert "system:authenticated" in viewer.groups

    async def test_token_that_nobody_issued_has_no_user(self, stage):
        for token in (f"{await stage.user('one')}x", "x.y.z"):
            assert parse_token_review(await stage.api.create(TOKEN_REVIEWS, token_review(token, ())), ()) is None

    async def test_token_for_somebody_else_has_no_user(self, stage):
        """One for the API server is refused where another audience is wanted."""
        token, wanted = await stage.user("one"), ("edl-page",)
        answer = await stage.api.create(TOKEN_REVIEWS, token_review(token, wanted))
        assert parse_token_review(answer, wanted) is None

    async def test_right_holds_where_it_is_given(self, stage):
        token = await stage.user("one", lists=PODS)
        viewer = parse_token_review(await stage.api.create(TOKEN_REVIEWS, token_review(token, ())), ())

        async def may_list(kind, namespace):
            right = ReadRight(kind=kind, namespace=namespace)
            return parse_access_review(await stage.api.create(ACCESS_REVIEWS, access_review(viewer, right)))

        assert await may_list(PODS, stage.namespace)
        assert not await may_list(PODS, "")
        assert not await may_list(PODS, "default")
        assert not await may_list(CONFIG_MAPS, stage.namespace)

    async def test_refused_review_quotes_no_token(self, stage):
        with pytest.raises(ClusterError) as refused:
            await stage.api.create(TOKEN_REVIEWS, {"spec": {"token": "", "audiences": ["secret"]}})
        assert "secret" not in str(refused.value)
