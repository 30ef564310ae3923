"""Variables of trainers that `edl.launch` hands to the command `edl launch`: in its environment, under a prefix.

Every user of a machine can read command lines, so values stay out of them.  Without the prefix a variable such as PATH
would be the command's own as well.  No process of the run inherits names with EDL_.
"""

from __future__ import annotations

from typing import Final

GIVEN: Final = "EDL_LAUNCH_"
