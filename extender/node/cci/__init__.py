"""The CCI resource manager of KEP-3675, and the kit for its drivers: write a `Driver`, and `serve` it.

docs/how-to/cci-drivers.md shows one.
"""

from extender.node.cci.kit import FOLDER as FOLDER
from extender.node.cci.kit import Driver as Driver
from extender.node.cci.kit import serve as serve
from extender.node.cci.kit import serving as serving
from extender.node.cci.protocol import Ask as Ask
from extender.node.cci.protocol import ClaimName as ClaimName
from extender.node.cci.protocol import End as End
from extender.node.cci.protocol import Grant as Grant
from extender.node.cci.protocol import RefusedError as RefusedError
from extender.node.cci.protocol import Start as Start
from extender.node.topology import Cpu as Cpu
