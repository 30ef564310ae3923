"""A trainer that registers, prints `ready`, and then does nothing: `python -m tests.programs.idle_member ADDRESS`."""

import asyncio
import sys

from master.api.identities import DatasetSpec
from tests.harness.master_process import MemberStream, Sharder


async def main() -> None:
    async with MemberStream(sys.argv[1]) as member:
        await Sharder(DatasetSpec(name="digits", size=500, epochs=2, batch_size=10)).register(member)
        print("ready", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main())
