"""The kit for controllers of negotiated claims: write a `Controller`, and `serve` it.

docs/reference/controllers.md shows one. The kit remembers allocations on disk, so that each question may come twice.
"""

from extender.config.settings import ParameterKind as ParameterKind
from extender.controllers.contexts import serve_contexts as serve_contexts
from extender.controllers.controller import Controller as Controller
from extender.controllers.controller import Held as Held
from extender.controllers.controller import RefusedError as RefusedError
from extender.controllers.controller import Responder as Responder
from extender.controllers.server import Listening as Listening
from extender.controllers.server import serve as serve
from extender.controllers.store import Store as Store
from extender.kube.certificates import CertificateFiles as CertificateFiles
from extender.kube.certificates import Certificates as Certificates
from extender.plugins.negotiation.protocol import ClaimAsk as ClaimAsk
from extender.plugins.negotiation.protocol import NodeName as NodeName
