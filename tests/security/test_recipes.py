"""A recipe from anywhere is a recipe or an error in one line: nothing runs, nothing grows, nothing else is raised."""

import time
import tracemalloc

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from vcycle.errors import RecipeError
from vcycle.tasks.recipes import load_recipe, parse_recipe, recipe_names, recipe_text

SHIPPED = [recipe_text(name)[0] for name in recipe_names()]

NASTY = (
    *("!!python/object/apply:os.system ['touch harmed']", "!!python/name:os.system", "!!int no", "!!bool perhaps"),
    *(
        "!!binary ///",
        "!!timestamp x",
        "2001-99-99",
        "!!set {a, b}",
        "!!float x",
        "!!int ''",
        "0x",
        "0b",
        "1:61:99",
        "0o",
    ),
    *("&a [*a]", "*a", "&a {<<: *a}", "<<: {a: 1}", "{<<: 3}", "? [a]\n: b", "[" * 30, "{a: " * 30, "- - - -", "|\n x"),
    *("9" * 5000, "1e999", "-.inf", ".nan", "~", "''", "\\0", '"\\ud800"', '"\\x00"', "\ufeff", "\u2028", "%YAML 9.9"),
    *("--- a\n--- b", "{}", "[]", "true", "-1", "0", "1e308", "10000000000000000000000", "@", "`", "\t", "key: value"),
)

pieces = st.one_of(st.sampled_from(NASTY), st.text(max_size=8), st.integers().map(str), st.floats().map(str))


@st.composite
def spoilt(draw):
    """The text of a shipped recipe with some values, keys or lines put in the place of others."""
    lines = draw(st.sampled_from(SHIPPED)).splitlines()
    for _ in range(draw(st.integers(1, 3))):
        place = draw(st.integers(0, len(lines) - 1))
        key, colon, _ = lines[place].partition(":")
        piece = draw(pieces)
        how = draw(st.integers(0, 4))
        if how == 0:
            lines[place] = f"{key}{colon} {piece}"
        elif how == 1:
            lines[place] = piece + lines[place]
        elif how == 2:
            lines[place] = lines[draw(st.integers(0, len(lines) - 1))]
        elif how == 3:
            cut = draw(st.integers(0, len(lines[place])))
            lines[place] = lines[place][:cut] + piece + lines[place][cut:]
        else:
            del lines[place:]
            lines.append(piece)
    return "\n".join(lines)


def refusal(load, *args):
    """Why something is no recipe; nothing where it is one."""
    try:
        load(*args)
    except RecipeError as error:
        return str(error)
    return ""


@settings(max_examples=60)
@given(spoilt())
def test_a_spoilt_recipe_is_a_recipe_or_an_error_in_one_line(text):
    assert "\n" not in refusal(parse_recipe, text, "spoilt.yaml")


@settings(max_examples=60)
@given(st.sampled_from(["training.lr", "data", "model", "model.options.x", "run.seed", "a.b.c", "plans", ""]), pieces)
@example("model.options", "&a [*a]")
def test_so_is_an_override(key, value):
    assert "\n" not in refusal(load_recipe, "videos/small", [f"{key}={value}"])


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system ['touch harmed']", "!!python/object/new:os.system ['touch harmed']"]
)
def test_nothing_is_executed(tmp_path, monkeypatch, tag):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RecipeError, match="not valid YAML: could not determine a constructor for the tag"):
        parse_recipe(f"description: {tag}", "x.yaml")
    assert list(tmp_path.iterdir()) == []


def bomb(levels=40):
    """A few lines that stand for 10 ** levels values."""
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, levels)]
    return "\n".join(lines)


def test_a_few_lines_cannot_stand_for_more_than_memory_holds():
    tracemalloc.start()
    began = time.process_time()
    with pytest.raises(RecipeError, match=r"x\.yaml: not valid YAML: aliases \(\*name\) are not accepted in .* line 2"):
        parse_recipe(bomb(), "x.yaml")
    assert time.process_time() - began < 10
    assert tracemalloc.get_traced_memory()[1] < 10 << 20
    tracemalloc.stop()


def test_a_file_that_is_too_long_for_a_recipe_is_not_read(tmp_path):
    file = tmp_path / "long.yaml"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    with pytest.raises(
        RecipeError, match=r"long\.yaml: too large for a recipe: 1,099,511,627,776 bytes; the limit is 1,048,576"
    ):
        load_recipe(str(file))


@pytest.mark.parametrize("text", ["[" * 5_000, "{a: " * 5_000, "- " * 5_000])
def test_deep_nesting_is_an_error_in_one_line(text):
    with pytest.raises(RecipeError, match=r"^x\.yaml: "):
        parse_recipe(text, "x.yaml")


def test_a_date_is_text_and_plain_values_stay_what_they_are():
    text = SHIPPED[0].splitlines()
    text = [line for line in text if not line.startswith("description:")]
    recipe = parse_recipe("\n".join(["description: 2026-11-28", *text]), "x.yaml")
    assert recipe.description == "2026-11-28"
