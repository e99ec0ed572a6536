"""The page of the cluster in a real browser: two real nodes, of which one is cut off."""

from tests.browser.conftest import View, violations
from tests.cluster.linked_nodes import LinkedNode, Links
from tests.gateway.console.conftest import Shown


def test_a_cut_is_seen_and_the_node_can_be_forgotten(chromium, tmp_path):
    links = Links()
    with (
        LinkedNode(links, tmp_path / "a", "alpha", port=0) as alpha,
        LinkedNode(links, tmp_path / "b", "<b>beta</b>") as beta,
        Shown(alpha, "--destructive") as console,
    ):
        view = View(chromium, console)
        page = view.show("cluster", "2 of 2 nodes live")
        links.cut(alpha.me.ref, beta.me.ref)
        page.get_by_text("1 of 2 nodes live").wait_for()
        view.shot("cluster")
        assert violations(page) == []
        page.get_by_role("button", name="Forget…").click()
        page.get_by_label("Type <b>beta</b> to go on").fill("<b>beta</b>")
        page.get_by_role("dialog").get_by_role("button", name="Forget").click()
        page.get_by_role("cell", name="forgotten").wait_for()
        view.close()
