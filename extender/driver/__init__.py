"""The kit for controllers of negotiated claims: write a `Controller`, and `serve` it.

docs/reference/controllers.md shows one. The kit remembers allocations on disk, so that each question may come twice.
"""

from extender.config.controllers import ParameterKind as ParameterKind
from extender.driver.contexts import serve_contexts as serve_contexts
from extender.driver.controller import Controller as Controller
from extender.driver.controller import Held as Held
from extender.driver.controller import RefusedError as RefusedError
from extender.driver.controller import Responder as Responder
from extender.driver.server import Listening as Listening
from extender.driver.server import serve as serve
from extender.driver.store import Store as Store
from extender.kube.certificates import CertificateFiles as CertificateFiles
from extender.kube.certificates import Certificates as Certificates
from extender.negotiation.protocol import ClaimAsk as ClaimAsk
from extender.negotiation.protocol import NodeName as NodeName
