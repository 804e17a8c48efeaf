"""Objects as proposals and earlier APIs write them (KEP-14, KEP-3063, KEP-3675), and what they are today."""

from extender.lab.old_forms.changes import Change as Change
from extender.lab.old_forms.objects import Rewritten as Rewritten
from extender.lab.old_forms.objects import changes_of as changes_of
from extender.lab.old_forms.objects import from_text_form as from_text_form
from extender.lab.old_forms.objects import rewritten as rewritten
