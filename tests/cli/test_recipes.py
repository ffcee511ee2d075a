"""`vcycle recipes`."""

import json

import pytest
import yaml

from vcycle.tasks.recipes import load_recipe, recipe_names


def test_every_shipped_recipe_is_listed_with_what_it_is(vcycle):
    ran = vcycle("recipes")
    assert ran.code == 0
    words = " ".join(ran.out.split())  # rich 13 breaks the line of a long one
    for name in recipe_names():
        assert f" {name} {load_recipe(name).description} " in f"{words} "
    assert json.loads(vcycle("recipes", "--json").out)["recipes"].keys() == set(recipe_names())


@pytest.mark.parametrize("name", recipe_names())
def test_a_recipe_is_shown_as_it_is_written(vcycle, name):
    shown = vcycle("recipes", "show", name).out
    assert yaml.safe_load(shown)["description"] == load_recipe(name).description


def test_a_shown_recipe_is_a_recipe(vcycle, here):
    (here / "mine.yaml").write_text(vcycle("recipes", "show", "kinetics/slowfast_8x8_r50").out)
    mine = vcycle("plan", "mine.yaml", "--json")
    assert mine.out == vcycle("plan", "kinetics/slowfast_8x8_r50", "--json").out


def test_the_recipe_as_it_is_understood_has_its_defaults(vcycle):
    printed = json.loads(vcycle("recipes", "show", "demo/digits", "--json").out)
    assert printed["name"] == "demo/digits"
    assert printed["recipe"]["run"]["bad_limit"] == 0.05


def test_an_unknown_recipe_names_the_nearest_and_where_all_are_listed(vcycle):
    ran = vcycle("recipes", "show", "kinetics/slowfast_8x8_r5")
    assert ran.code == 2
    assert "did you mean 'kinetics/slowfast_8x8_r50'?" in ran.err
    assert "`vcycle recipes` lists" in ran.err
    assert ran.err.count("\n") == 1


def test_show_without_a_name_is_a_usage_error(vcycle):
    ran = vcycle("recipes", "show")
    assert ran.code == 2
    assert "Missing argument 'RECIPE'" in ran.err


@pytest.mark.parametrize("columns", ["40", "80"])
def test_the_list_can_be_read_on_a_narrow_terminal(vcycle, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    ran = vcycle("recipes")
    assert max(map(len, ran.out.splitlines())) <= int(columns)
    assert all(name in ran.out for name in recipe_names())
    words = set(ran.out.split())
    assert all(set(load_recipe(name).description.split()) <= words for name in recipe_names())


def test_a_users_own_videos_come_first_and_folders_stay_together(vcycle):
    words = [line.split()[0] for line in vcycle("recipes").out.splitlines() if line.strip()]
    listed = [word for word in words if word in recipe_names()]
    assert sorted(listed) == recipe_names()
    folders = [name.partition("/")[0] for name in listed]
    first = list(dict.fromkeys(folders))
    assert first == ["videos", "demo", *sorted(first[2:])]
    assert folders == sorted(folders, key=first.index)


def test_a_recipe_over_a_base_is_shown_as_written_and_as_understood(vcycle):
    name = "kinetics/slowfast_8x8_r50_t16"
    assert "base: kinetics/slowfast_8x8_r50" in vcycle("recipes", "show", name).out
    assert json.loads(vcycle("recipes", "show", name, "--json").out)["recipe"]["training"]["frames"] == 16
