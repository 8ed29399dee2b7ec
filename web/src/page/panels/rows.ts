// A list that scrolls, of which only the rows in sight are elements. A short list is whole, so that the browser's own search finds all.

const WHOLE = 250; // rows of a list that is always whole
const SPARE = 10; // rows above and below those in sight
const MOST = 150; // rows at once, also if the list has no height of its own

/** Return the rows to make, from the first to before the second, for a list scrolled by `top` of which `height` is in sight. */
export function inSight(size: number, row: number, top: number, height: number): [number, number] {
  if (size <= WHOLE) return [0, size];
  const count = Math.min(MOST, Math.ceil(height / row) + 2 * SPARE);
  const from = Math.max(0, Math.min(size - count, Math.floor(top / row) - SPARE));
  return [from, from + count];
}

export class Rows {
  private size = 0;
  private height = 24; // of a row, in CSS pixels; measured when there is one
  private from = 0;

  /** `make` returns the row of an index. All rows have the same height. */
  constructor(
    private readonly list: HTMLElement,
    private readonly make: (i: number) => HTMLElement,
  ) {
    list.addEventListener("scroll", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(list);
  }

  /** Make the rows again, because their contents changed. */
  reset(size: number): void {
    this.size = size;
    this.draw(true);
    const height = this.list.firstElementChild?.getBoundingClientRect().height;
    if (size <= WHOLE || !height || height === this.height) return;
    this.height = height;
    this.draw();
  }

  /** Return the row of an index; undefined if it is out of sight. */
  row(i: number): HTMLElement | undefined {
    return this.list.children[i - this.from] as HTMLElement | undefined;
  }

  each(change: (row: HTMLElement, i: number) => void): void {
    [...this.list.children].forEach((row, at) => change(row as HTMLElement, this.from + at));
  }

  /** Scroll the list, but not the page, until a row is visible. */
  reveal(i: number): void {
    const { list } = this;
    const row = this.row(i);
    const [top, height] = row ? [row.offsetTop - list.offsetTop, row.offsetHeight] : [i * this.height, this.height];
    if (i < 0 || i >= this.size) return;
    if (top < list.scrollTop) list.scrollTop = top;
    else if (top + height > list.scrollTop + list.clientHeight) list.scrollTop = top + height - list.clientHeight;
    this.draw();
  }

  private draw(anew = false): void {
    const { list, size, height } = this;
    const [from, to] = inSight(size, height, list.scrollTop, list.clientHeight);
    const [before, count] = [this.from, list.childElementCount];
    list.style.setProperty("--before", `${from * height}px`); // the room of the rows out of sight; see page.css
    list.style.setProperty("--after", `${(size - to) * height}px`);
    if (!anew && from === before && to - from === count) return;
    const kept = new Map(anew ? [] : [...list.children].map((row, at) => [before + at, row]));
    this.from = from;
    list.replaceChildren(
      ...Array.from({ length: to - from }, (_, at) => {
        const row = kept.get(from + at) ?? this.make(from + at);
        if (to - from < size) {
          row.setAttribute("aria-posinset", String(from + at + 1));
          row.setAttribute("aria-setsize", String(size));
        }
        return row;
      }),
    );
  }
}
