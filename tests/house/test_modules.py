"""docs/reference/modules.md, which is made from the code."""

from pathlib import Path

from tests.house.modules import PAGE, page


def test_the_page_of_modules_is_that_of_the_code() -> None:
    assert PAGE.read_text() == page(), "run `make docs-modules`, and commit the page with the change of the code"


def test_a_folder_has_its_first_line_and_a_row_for_each_module(tmp_path: Path) -> None:
    for path, docstring in {
        "allocator/__init__.py": "Decides.\n\nMore.",
        "allocator/b.py": "What `a | b` is.",
        "allocator/a.py": "A rule.",
        "allocator/inner/__init__.py": "Inside.",
        "allocator/inner/__main__.py": "Starts.",
    }.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(f'"""{docstring}"""\n')
    assert page(tmp_path).partition("\n## ")[2] == (
        "allocator/\n\nDecides.\n\n| module | what it is |\n|---|---|\n"
        "| [a.py](../../allocator/a.py) | A rule. |\n| [b.py](../../allocator/b.py) | What `a \\| b` is. |\n"
        "\n### allocator/inner/\n\nInside.\n"
    )
