"""DeviceTaintRules."""

from collections.abc import Mapping

from allocator.model.json.common import GROUP, VERSIONS, ObjectReader, read_taint
from allocator.model.taint_rules import TaintRule


def parse_taint_rule(obj: Mapping[str, object]) -> TaintRule:
    """A DeviceTaintRule of v1, v1beta2, v1beta1 or v1alpha3.

    Raises:
        InvalidObjectError: all that is wrong with it. Selectors of the first v1alpha3 are refused: without them the
            rule would taint more devices than it says.
    """
    reader = ObjectReader("DeviceTaintRule", obj, (*VERSIONS, f"{GROUP}/v1alpha3"))
    spec = reader.top.child("spec")
    selector = spec.child("deviceSelector")
    for dropped in ("deviceClassName", "selectors"):
        if selector.has(dropped):
            selector.problem(dropped, "is not supported")
    parsed = TaintRule(
        name=reader.name,
        taint=read_taint(spec.child("taint")),
        driver=selector.text_or_none("driver"),
        pool=selector.text_or_none("pool"),
        device=selector.text_or_none("device"),
        selects_none=not spec.has("deviceSelector"),
    )
    reader.finish()
    return parsed
