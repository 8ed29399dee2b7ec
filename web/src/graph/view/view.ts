// The interactive graph: the state (session.ts) with toolbar, outline, picture and panel.
import { el } from "../../ui/dom.ts";
import type { VisibleLayout } from "../layout/visibleLayout.ts";
import { isRecurrent } from "../model/roll.ts";
import type { Scene } from "../model/scene.ts";
import type { Tree } from "../model/tree.ts";
import type { BuiltIn, Paint } from "../paint/paint.ts";
import type { Camera } from "../paint/picture.ts";
import { visibleBox, type VisibleBox, visibleRoute, type VisibleRoute } from "../paint/visibleBoxes.ts";
import { errorNote, notesOf } from "../panel/failure.ts";
import { Outline } from "../panel/outline.ts";
import { panelFor } from "../panel/panel.ts";
import { searchField, type SearchField, SearchIndex } from "../panel/search.ts";
import { edgePanel } from "../panel/tensors.ts";
import { toolbar, type Toolbar, type ToolbarActions } from "../panel/toolbar.ts";
import { listen } from "./input.ts";
import { gestures, type GraphCommands, onLevelKey, onPictureKey } from "./keys.ts";
import { fromHash, hashOf } from "./link.ts";
import type { GraphOptions } from "./options.ts";
import { Session } from "./session.ts";

export type { GraphOptions } from "./options.ts";
export type { Paint } from "../paint/paint.ts";

declare global {
  interface HTMLElement {
    /** The graph in an element, for tests and scripts. */
    intusView?: GraphView;
  }
}

/** The interactive graph of one model, filling `host`. */
export class GraphView extends Session implements GraphCommands {
  private readonly announcement = el("p", { class: "ig-announcement", "aria-live": "polite" });
  private readonly outline: Outline;
  private readonly index = new SearchIndex();
  private readonly search: SearchField;
  private readonly bar: Toolbar;
  private readonly root: HTMLElement;
  private panel: HTMLElement | null = null;

  constructor(host: HTMLElement, scene: Scene, options: GraphOptions = {}) {
    super(host, scene, options);
    this.index.of(this.tree);
    this.outline = new Outline(() => ({ layoutView: this.layoutView, visible: this.visible }), { select: (id) => this.selectBox(id, true), toggle: (id) => this.toggle(id) });
    this.search = searchField(this.index, (id) => this.goTo(id), (text) => options.onSearch?.(text));
    this.bar = this.makeToolbar();
    const { area, canvas } = this.graphCanvas;
    area.append(this.colours.element, this.announcement);
    if (this.tree.nodes.length === 1) area.append(el("p", { class: "ig-nothing" }, "No operation ran."));
    const notice = errorNote(this.tree, (id) => this.goTo(id));
    this.root = el("div", { class: "intus-graph" }, this.bar.element, notice, notesOf(this.tree), el("div", { class: "ig-body" }, this.outline.element, area));
    host.replaceChildren(this.root);
    host.intusView = this;
    this.colours.put("");
    this.bar.setDepth(this.layoutView.depth, this.layoutView.depths.steps);
    this.bar.setShown(this.rolled, this.tree.details);
    listen(canvas, gestures(this), options.isGuest === true);
    (options.ownsPage ? document : this.root).addEventListener("keydown", (event) => this.onKey(event as KeyboardEvent));
    this.outline.update(-1);
    this.start();
  }

  // -- public methods ---------------------------------------------------------------------------------

  /** All addresses that `select` and `paint` accept. */
  get addresses(): string[] {
    return [...this.tree.byAddress.keys()];
  }

  /** Color the boxes by address, or remove the colors. */
  paint(paint: Paint | null): void {
    this.colours.give(paint);
  }

  /** Color by a built-in paint. */
  paintBuiltIn(which: BuiltIn): void {
    this.colours.put(which);
  }

  /** Select the box of an address and open everything around it; null or an unknown address selects nothing. */
  select(address: string | null): void {
    const id = address === null ? -1 : this.graphModel.find(address);
    if (id < 0) this.selectBox(-1);
    else this.goTo(id);
  }

  /** Show the place of a URL hash (see `onPlace`); a hash without a place changes nothing. */
  restore(hash: string): void {
    const place = fromHash(hash);
    if (place) this.follow(place, true);
  }

  /** The visible layout, the camera, the selection and the size of the picture. */
  get viewport(): { visible: VisibleLayout; tree: Tree; camera: Camera; selected: number; width: number; height: number } {
    const { visible, tree, selected, cameraControl } = this;
    const { clientWidth: width, clientHeight: height } = this.graphCanvas.area;
    return { visible, tree, selected, camera: cameraControl.camera, width, height };
  }

  /** Move the camera. */
  moveCamera(camera: Camera): void {
    this.cameraControl.move(camera);
  }

  /** Set the text of the search field; results appear when it gets the focus. */
  writeSearch(text: string): void {
    this.search.write(text);
  }

  /** Show the whole graph. */
  fit(): void {
    const { offsetHeight, offsetTop } = this.colours.element;
    this.cameraControl.fit(offsetHeight && this.graphCanvas.area.clientHeight - offsetTop + 4); // 4 if it is below the picture
  }

  /** Remove the graph from its element. */
  destroy(): void {
    this.graphCanvas.stop();
    this.opening.stop();
    delete this.host.intusView;
    this.root.remove();
  }

  /** Return the visible boxes with their positions on the screen. */
  boxes(): VisibleBox[] {
    const { picture } = this.graphCanvas;
    return picture.visible.boxes.map((box) => visibleBox(picture, box));
  }

  /** Return the visible edges with their routes. */
  routes(): VisibleRoute[] {
    const { picture } = this.graphCanvas;
    return picture.visible.lines.map((line) => visibleRoute(picture, line));
  }

  /** Whether nothing is moving and no layout is in progress. */
  get still(): boolean {
    return this.graphCanvas.still && !this.opening.busy;
  }

  // -- showing changes of the state ------------------------------------------------------------------------

  protected onSelected(): void {
    this.showPanel();
    this.outline.update(this.selected);
  }

  protected onOpened(): void {
    this.outline.update(this.selected);
    if (this.panel) this.showPanel();
  }

  protected onRolled(): void {
    this.index.of(this.tree);
    this.bar.setShown(this.rolled, this.tree.details);
  }

  protected announce(text: string): void {
    this.announcement.textContent = text;
  }

  protected onColours(): void {
    const { which, givenTitle } = this.colours;
    this.bar.setPaint(which, givenTitle);
    if (this.selected >= 0) this.showPanel();
    this.redraw();
    this.options.onPaint?.();
  }

  private showPanel(): void {
    const actions = {
      goTo: (id: number) => this.goTo(id),
      close: () => this.selectBox(-1),
      pick: (id: number, which: number | "all") => this.change(() => this.layoutView.pick(id, which), id),
    };
    const { tree, layoutView, selected, edge } = this;
    const panel = edge ? edgePanel(tree, edge, actions) : selected < 0 ? null : panelFor(layoutView, selected, this.colours.paint, actions);
    if (this.panel && panel) this.panel.replaceWith(panel);
    else if (panel) this.graphCanvas.area.append(panel);
    else this.panel?.remove();
    this.panel = panel;
  }

  protected onPlaceChanged(): void {
    const { tree, layoutView, selected, rolled } = this;
    this.bar.setDepth(layoutView.depth, layoutView.depths.steps);
    this.options.onPlace?.(hashOf(tree, layoutView, selected, rolled));
    this.redraw();
  }

  private redraw(): void {
    this.graphCanvas.redraw();
  }

  /** Draw at once, for benchmarks. */
  paintNow(): void {
    this.graphCanvas.paintNow();
  }

  private makeToolbar(): Toolbar {
    const actions: ToolbarActions = {
      toggleOutline: () => {
        this.root.dataset.outline = this.outline.shown ? "hidden" : "shown";
        this.outline.update(this.selected);
      },
      openToDepth: (depth) => this.openToDepth(depth),
      deeper: (by) => this.openToDepth(this.layoutView.depths.next(this.layoutView.open, this.layoutView.depth, by)),
      zoom: (factor) => this.cameraControl.zoom(factor),
      fit: () => this.fit(),
      roll: isRecurrent(this.scene) ? (rolled) => this.show(rolled, this.tree.details) : null,
      detail: (details) => this.show(this.rolled, details),
      paint: (which) => this.colours.put(which),
    };
    return toolbar(this.scene, this.search.element, actions, this.options.themeButton === true);
  }

  // -- keys and pointer --------------------------------------------------------------------------------------------

  /** Highlight the box under the pointer, -1 for none. */
  hover(id: number, clickable: boolean): void {
    const { canvas } = this.graphCanvas;
    canvas.style.cursor = clickable ? "pointer" : "";
    if (id === this.hovered) return;
    this.hovered = id;
    const node = this.tree.nodes[id];
    canvas.title = node ? node.address || node.title : "";
    this.redraw();
  }

  private onKey(event: KeyboardEvent): void {
    if (event.key === "/" && !(event.target instanceof HTMLInputElement)) {
      this.root.querySelector<HTMLInputElement>(".ig-search input")?.focus();
      return event.preventDefault();
    }
    const [inCanvas, inOutline] = [this.graphCanvas.canvas, this.outline.element].map((element) => element.contains(event.target as Node));
    const inPicture = inCanvas || event.target === document.body; // nothing has the focus
    if ((!inPicture && !inOutline) || event.ctrlKey || event.metaKey || event.altKey) return;
    if (onLevelKey(event.key, this) || (inPicture && onPictureKey(event.key, this))) event.preventDefault();
  }
}
