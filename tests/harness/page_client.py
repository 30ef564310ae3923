"""What a client reads of a served page: answers, their status, and parts of a stream."""

import asyncio

DEADLINE_S = 30


async def next_part(answer):
    """The next event of a stream: its number and its HTML."""
    number, lines = 0, []
    async with asyncio.timeout(DEADLINE_S):
        async for raw in answer.content:
            text = raw.decode().rstrip("\n")
            if text.startswith("id: "):
                number = int(text[4:])
            elif text.startswith("data: "):
                lines.append(text[6:])
            elif not text and number:
                return number, "\n".join(lines)
            elif not text:
                lines = []  # a sign of life
    raise AssertionError("the stream ended")


async def fetch(client, address):
    """The text of an answer that there is."""
    async with client.get(address) as answer:
        assert answer.status == 200
        return await answer.text()


async def status_of(client, address, **headers):
    """The status code of the answer."""
    async with client.get(address, headers=headers) as answer:
        return answer.status
