"""Tools of both packages, which know nothing of devices: bounded memories, text that may be shown, names, JSON.

This is the whole interface of the tools. Both packages use them, and they import nothing of either.
"""

from allocator.tools import jsontext as jsontext
from allocator.tools.fields import Fields as Fields
from allocator.tools.fields import ObjectReader as ObjectReader
from allocator.tools.fields import raise_if_invalid as raise_if_invalid
from allocator.tools.jsontext import JSON as JSON
from allocator.tools.names import dns_label as dns_label
from allocator.tools.names import dns_subdomain as dns_subdomain
from allocator.tools.names import driver_name as driver_name
from allocator.tools.names import label_key as label_key
from allocator.tools.names import qualified_name as qualified_name
from allocator.tools.printable import NO_TEXT as NO_TEXT
from allocator.tools.printable import Printable as Printable
from allocator.tools.printable import printable as printable
from allocator.tools.printable import printable_lines as printable_lines
from allocator.tools.printable import shown as shown
from allocator.tools.recent import Recent as Recent
from allocator.tools.spelling import did_you_mean as did_you_mean
from allocator.tools.spelling import hint as hint
from allocator.tools.spelling import meant_by as meant_by
from allocator.tools.spelling import nearest as nearest
from allocator.tools.spelling import nearest_attribute as nearest_attribute
