"""Why a device does not serve a request: everything that speaks against it, with what was needed and what was seen."""

from allocator.obstacles.obstacle import Held as Held
from allocator.obstacles.obstacle import Obstacle as Obstacle
from allocator.obstacles.obstacle import Remedy as Remedy
from allocator.obstacles.obstacle import RemedyKind as RemedyKind
from allocator.obstacles.obstacle import Seen as Seen
from allocator.obstacles.selector_conditions import ABSENT as ABSENT
from allocator.obstacles.selector_conditions import ReadValues as ReadValues
from allocator.obstacles.selector_conditions import conditions_of as conditions_of
from allocator.obstacles.selector_conditions import value_in_words as value_in_words
from allocator.obstacles.selector_conditions import values_read as values_read
from allocator.obstacles.unmet_conditions import condition_in_words as condition_in_words
