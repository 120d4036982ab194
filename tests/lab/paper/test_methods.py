"""Methods in rows: their names, groups and order, and what the paper reports of them."""

from __future__ import annotations

from nicegnn_lab.paper.methods import Method, methods_in, our_method, own_mechanism
from tests.lab.tables.synthetic_rows import bench_rows


def named(name: str) -> str:
    plain, _, mechanism = name.partition("+")
    return f"{plain}+{mechanism or own_mechanism(plain)}"


def test_a_former_default_is_shown_as_such_until_rows_hold_the_new_one() -> None:
    former, now = Method("nice", "both"), Method("nice", "exchange")
    assert (former.label, now.label) == ("nice (former)", "nice")
    assert former.is_ranked
    assert Method("nice-gone", "both").group == "variant"  # of ours, and not listed any more
    rows = bench_rows({("benzene", "nice+both", 0): [0.5], ("benzene", "nice+nc", 0): [0.5]})
    assert our_method(rows) == former
    more = bench_rows({("benzene", f"nice+{way}", 0): [0.5] for way in ("both", "exchange")})
    assert our_method(more) == now
    assert methods_in(more) == [now]


def test_methods_come_group_by_group_in_the_order_of_the_registry() -> None:
    names = ("random", "nice", "somebody", "gnnexplainer+nc", "saliency", "gnnexplainer")
    rows = bench_rows({("benzene", named(name), 0): [0.5] for name in names})
    found = [method.label for method in methods_in(rows, variants=True)]
    rivals = ["saliency", "gnnexplainer", "gnnexplainer+nc", "somebody"]
    assert found == [*rivals, "nice", "random"]
    assert [m.label for m in methods_in(rows)] == [n for n in found if "+" not in n]


def test_the_papers_value_is_about_the_method_as_published() -> None:
    assert Method("nice", own_mechanism("nice")).paper("roc_auc", "benzene") == 86.62
    assert Method("nice-paper", own_mechanism("nice-paper")).paper("roc_auc", "benzene") == 86.62
    assert Method("pgexplainer", own_mechanism("pgexplainer")).paper("f1", "pains") == 45.98
    assert Method("pgexplainer", "nc").paper("f1", "pains") is None
    assert Method("occlusion", own_mechanism("occlusion")).paper("f1", "pains") is None
