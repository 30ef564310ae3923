"""Users of an API server in memory: their tokens and what they may list, told by reviews as a real server tells it."""

from autoscaler.clusters.kubernetes.api.errors import BadRequestError
from autoscaler.clusters.kubernetes.api.kinds import ACCESS_REVIEWS, TOKEN_REVIEWS
from autoscaler.clusters.kubernetes.memory_api import MemoryServer

AUDIENCE = "https://kubernetes.default.svc"


class MemoryUsers:
    """`problem` is raised by each review while it is set; `asked` counts them by kind."""

    def __init__(self, server: MemoryServer) -> None:
        self.tokens: dict[str, str] = {}
        self.extra: dict[str, dict[str, list[str]]] = {}  # of a token
        self.rights: set[tuple[str, str, str]] = set()  # user, [VERB ]plural[/subresource], namespace ("": all of them)
        self.problem: Exception | None = None
        self.asked = {TOKEN_REVIEWS: 0, ACCESS_REVIEWS: 0}
        server.reviewers |= {TOKEN_REVIEWS: self._review_token, ACCESS_REVIEWS: self._review_access}

    def give(self, user: str, plural: str, *namespaces: str) -> None:
        """Let the user list the kind there, or get its subresource; without namespaces everywhere.

        `patch pods` gives another verb.
        """
        self.rights |= {(user, plural, name) for name in namespaces or ("",)}

    async def make(self, name, namespace, lists=None):
        """Make a user who may list the kind in the namespace; return the token."""
        self.tokens[f"token-of-{name}"] = name
        if lists is not None:
            self.give(name, lists.plural, namespace)
        return f"token-of-{name}"

    def _review_token(self, body):
        self._count(TOKEN_REVIEWS)
        if not body["spec"].get("token"):
            raise BadRequestError("create tokenreviews: token is required for TokenReview in authentication")
        name = self.tokens.get(body["spec"]["token"])
        wanted = body["spec"].get("audiences", [AUDIENCE])
        if name is None or AUDIENCE not in wanted:
            return body | {"status": {"user": {}, "error": "[invalid bearer token]"}}
        groups = ["system:serviceaccounts", "system:authenticated"]
        status = {"authenticated": True, "user": {"username": name, "uid": f"uid-{name}", "groups": groups}}
        status["user"] |= {"extra": self.extra[token]} if (token := body["spec"]["token"]) in self.extra else {}
        return body | {"status": status | {"audiences": [AUDIENCE]}}

    def _review_access(self, body):
        self._count(ACCESS_REVIEWS)
        spec, asked = body["spec"], body["spec"]["resourceAttributes"]
        part, verb = asked.get("subresource", ""), asked["verb"]
        named = f"{asked['resource']}/{part}" if part else asked["resource"]
        named = named if verb == ("get" if part else "list") else f"{verb} {named}"
        places = {"", asked.get("namespace", "")}
        is_given = any((spec["user"], named, place) in self.rights for place in places)
        return body | {"status": {"allowed": is_given}}

    def _count(self, kind):
        self.asked[kind] += 1
        if self.problem is not None:
            raise self.problem
