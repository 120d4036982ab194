"""The page itself: components of Gradio and what happens when they are used.

What a visitor sees is kept in a state of the visit alone. Work waits in a queue; a few visitors
are served at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from importlib.resources import files
from typing import Any

import gradio as gr
import torch

from nicegnn.errors import ConfigError, NicegnnError
from nicegnn.page import views
from nicegnn.page.answer import SHARES, Answer, answer, beside, other_methods
from nicegnn.page.asking import (
    KINDS,
    Limits,
    PageError,
    Sent,
    Shelf,
    explain_sent,
    find_record,
    read_sent,
    typed_record,
)
from nicegnn.screening.gallery import prediction_words
from nicegnn.screening.shards import rows_of

AT_ONCE = 2  # visitors whose molecules are explained at the same time
_WAITING = 40  # visitors in the queue
_START = 30  # per cent of bonds, where the slider is at first
_USUAL = ("occlusion", "saliency")  # methods that are shown first
EXAMPLES = {
    "paracetamol": "CC(=O)Nc1ccc(O)cc1",
    "4-nitrobiphenyl": "O=[N+]([O-])c1ccc(-c2ccccc2)cc1",
    "caffeine": "Cn1c(=O)c2c(ncn2C)n(C)c1=O",
    "ibuprofen": "CC(C)Cc1ccc(C(C)C(=O)O)cc1",
    "menthol": "CC(C)C1CCC(C)CC1O",
}
_TITLE = """# Why did the model decide so?
Type a molecule, or send a file of them. A graph neural network predicts, and the colours show which
bonds and atoms its prediction rests on. Nothing leaves this machine."""
_HEADERS = ["row", "id", "prediction", "status", "SMILES"]
_PROGRESS = gr.Progress()  # Gradio replaces it by that of the visit
_NOTHING = (None, gr.update(visible=False), "", "", "", "", "")


class Page:
    """Everything that happens on the page, without its looks."""

    def __init__(self, shelf: Shelf, limits: Limits) -> None:
        self.shelf, self.limits = shelf, limits

    def typed(self, text: str, model: str, names: list[str], percent: float) -> tuple[Any, ...]:
        """Explains a typed SMILES."""
        return self._shown(lambda: self._answer(text, model), names, percent)

    def chosen(
        self, sent: tuple[str, Sent] | None, names: list[str], percent: float, event: gr.SelectData
    ) -> tuple[Any, ...]:
        """Explains the molecule of the row that was clicked, with the model of the table."""

        def work() -> Answer:
            if sent is None:
                raise PageError("Send a file first.")
            model, file = sent
            record = find_record(file.records, int(event.row_value[0]))
            subject = self.shelf[model]
            return answer(record, model, subject, self.limits, seed=self.shelf.seed)

        return self._shown(work, names, percent)

    def sent(
        self, path: str | None, column: str, model: str, progress: Any = _PROGRESS
    ) -> tuple[Any, ...]:
        """Explains all molecules of a file; returns the visit's file, words and table."""

        def work() -> tuple[Any, ...]:
            if not path:
                raise PageError(f"Choose a file first; it must end in {', '.join(KINDS)}.")
            file = read_sent(path, column or "", self.limits)
            subject = self.shelf[model]

            def tell(done: int, total: int) -> None:
                progress((done, total), unit="molecules")

            tables = explain_sent(file, subject, self.limits, seed=self.shelf.seed, tell=tell)
            good = [
                [one["row"], one["id"], prediction_words(one), one["status"], one["smiles"]]
                for one in rows_of(tables["molecules"])
            ]
            return (
                (model, file),
                views.told(tables, file.note),
                gr.update(value=good, visible=bool(good)),
            )

        hidden = gr.update(visible=False)
        return _kindly(work, lambda text: (None, views.problem(text), hidden))

    def moved(self, seen: Answer | None, percent: float) -> tuple[str, str]:
        """Shows another share of bonds; all was computed when the molecule was explained."""
        if seen is None:
            return "", ""
        place = round(percent / 100 * (len(SHARES) - 1))
        return views.picture(seen, place), views.effect(seen, place)

    def compared(self, seen: Answer | None, names: list[str]) -> tuple[Any, str]:
        """Shows other methods beside the page's own."""
        if seen is None:
            return None, ""

        def work() -> tuple[Any, str]:
            full = self._beside(seen, names)
            return full, views.others(full, names, self._own(full))

        return _kindly(work, lambda text: (seen, views.problem(text)))

    def card(self, model: str) -> str:
        """Says what a model is."""
        return views.about(self.shelf.card(model))

    def _answer(self, text: str, model: str) -> Answer:
        subject = self.shelf[model]
        return answer(typed_record(text), model, subject, self.limits, seed=self.shelf.seed)

    def _beside(self, seen: Answer, names: list[str]) -> Answer:
        subject = self.shelf[seen.model]
        return beside(seen, subject, names, self.limits, seed=self.shelf.seed)

    def _own(self, seen: Answer) -> str:
        return f"{self.shelf[seen.model].explainer.name} (this page)"

    def _shown(
        self, make: Callable[[], Answer], names: list[str], percent: float
    ) -> tuple[Any, ...]:
        """Returns what is shown of an answer, or a box that says why there is none."""

        def work() -> tuple[Any, ...]:
            seen = self._beside(make(), names)
            return (
                seen,
                gr.update(visible=True),
                views.headline(seen),
                *self.moved(seen, percent),
                views.words(seen),
                views.others(seen, names, self._own(seen)),
                "",
            )

        return _kindly(work, lambda text: (*_NOTHING, views.problem(text)))


def _kindly(work: Callable[[], Any], say: Callable[[str], Any]) -> Any:
    """Returns the result, or what is said about an error; unknown errors go to the log."""
    try:
        return work()
    except NicegnnError as error:
        return say(str(error))
    except Exception as error:
        logging.getLogger(__name__).exception("The page could not answer.")
        return say(f"This did not work ({type(error).__name__}). The log of the page says more.")


def make_page(shelf: Shelf, limits: Limits) -> gr.Blocks:
    """Returns the page; `serve` shows it."""
    page = Page(shelf, limits)
    heavy: dict[str, Any] = {"concurrency_limit": AT_ONCE, "concurrency_id": "work"}
    quick: dict[str, Any] = {"queue": False, "show_progress": "hidden"}
    private: dict[str, Any] = {"api_visibility": "private"}
    with gr.Blocks(title="nicegnn", analytics_enabled=False, delete_cache=(600, 3600)) as blocks:
        seen, file = gr.State(None, time_to_live=3600), gr.State(None, time_to_live=3600)
        gr.Markdown(_TITLE, elem_id="title")
        model = gr.Dropdown(list(shelf.names), value=shelf.first, label="Model", elem_id="model")
        about = gr.HTML(page.card(shelf.first))
        with gr.Tabs():
            with gr.Tab("A molecule"):
                smiles = gr.Textbox(
                    label="SMILES", placeholder="c1ccccc1O", lines=1, elem_id="smiles"
                )
                examples = gr.Examples(
                    [[text] for text in EXAMPLES.values()],
                    inputs=smiles,
                    example_labels=list(EXAMPLES),
                    label="Examples",
                    elem_id="examples",
                    cache_examples=False,
                )
                start = gr.Button("Explain", variant="primary", elem_id="explain")
            with gr.Tab("A file of molecules"):
                sending = gr.File(
                    label=f"{', '.join(KINDS)}; at most {limits.megabytes} MB",
                    file_types=list(KINDS),
                    type="filepath",
                    height=130,
                    elem_id="file",
                )
                column = gr.Textbox(
                    label="Column of the SMILES",
                    placeholder="found by its name if left empty",
                    elem_id="column",
                )
                screen = gr.Button("Explain all", variant="primary", elem_id="explain-all")
                told = gr.HTML(elem_id="told")
                table = gr.Dataframe(
                    headers=_HEADERS,
                    label="Click a row to see its picture",
                    interactive=False,
                    visible=False,
                    max_height=320,
                    max_chars=48,
                    elem_id="molecules",
                )
        problem = gr.HTML(elem_id="problem")
        with gr.Column(visible=False, elem_id="answer") as box:
            head = gr.HTML(elem_id="prediction")
            picture = gr.HTML(elem_id="picture")
            percent = gr.Slider(
                0,
                100,
                value=_START,
                step=100 / (len(SHARES) - 1),
                label="Bonds that are kept, the best ones, in per cent",
                elem_id="share",
            )
            effect = gr.HTML(elem_id="effect")
            words = gr.HTML(elem_id="words")
            names = gr.CheckboxGroup(
                list(other_methods()),
                value=[name for name in _USUAL if name in other_methods()],
                label="Methods side by side",
                elem_id="methods",
            )
            others = gr.HTML(elem_id="others")
        shown = [seen, box, head, picture, effect, words, others, problem]
        model.change(page.card, model, about, **quick, **private)
        for used in (start.click, smiles.submit, examples.load_input_event.then):
            used(page.typed, [smiles, model, names, percent], shown, **heavy, **private)
        screen.click(page.sent, [sending, column, model], [file, told, table], **heavy, **private)
        table.select(
            page.chosen,
            [file, names, percent],
            shown,
            scroll_to_output=True,
            **heavy,
            **private,
        )
        percent.input(
            page.moved,
            [seen, percent],
            [picture, effect],
            trigger_mode="always_last",
            **quick,
            **private,
        )
        names.input(page.compared, [seen, names], [seen, others], **heavy, **private)
    blocks.queue(max_size=_WAITING, api_open=False)
    return blocks


def serve(
    shelf: Shelf,
    limits: Limits,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    opens_browser: bool = False,
    say: Callable[[str], None] = print,
) -> None:
    """Shows the page until it is stopped by Ctrl-C.

    Args:
        port: 0 for the first free one.
        say: is told the page's address.
    """
    torch.set_num_threads(1)  # molecules are small: more threads mostly wait for each other
    blocks = make_page(shelf, limits)
    fonts = ["system-ui", "Segoe UI", "Helvetica", "Arial", "sans-serif"]
    _, address, _ = _launched(
        blocks,
        server_name=host,
        server_port=port or None,
        share=False,
        inbrowser=opens_browser,
        quiet=True,
        ssr_mode=False,
        enable_monitoring=False,
        mcp_server=False,
        footer_links=[],
        max_file_size=limits.megabytes * 2**20,
        prevent_thread_lock=True,
        theme=gr.themes.Soft(
            primary_hue="orange", font=fonts, font_mono=["ui-monospace", "Consolas", "monospace"]
        ).set(  # darker than usual: words must stand out from what is behind them
            block_title_text_color="*primary_800",
            block_label_text_color="*primary_800",
            button_primary_background_fill="*primary_700",
            button_primary_background_fill_hover="*primary_800",
        ),
        css=files("nicegnn.page").joinpath("page.css").read_text(encoding="utf-8"),
    )
    say(f"The page is at {address} (stop it with Ctrl-C).")
    try:
        blocks.block_thread()
    finally:
        blocks.close(verbose=False)


def _launched(blocks: gr.Blocks, **settings: Any) -> Any:
    """Launches the page; a port that is taken is a readable error."""
    try:
        return blocks.launch(**settings)
    except OSError as error:
        if "empty port" not in str(error):
            raise
        raise ConfigError(
            f"`port` must be free (got {settings['server_port'] or 'none that is'}). Name another "
            "port, or stop the program that uses it."
        ) from error
