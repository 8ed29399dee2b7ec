// Finding by height: what lies between two heights, without looking at the rest.
const FEW = 48; // fewer are looked at one by one
const IN_A_BAND = 8;
const MANY_BANDS = 16; // what reaches into more is kept apart

/** Places of a list, by the heights at which each begins and ends, ordered into bands. */
export class Bands {
  private low = Infinity;
  private height = 0;
  private count = 0;
  /** Places in the list, band after band, and where each band's begin. */
  private members = new Int32Array(0);
  private starts = new Int32Array(0);
  private readonly tall: number[] = [];

  constructor(
    private readonly tops: Float64Array,
    private readonly bottoms: Float64Array,
  ) {
    if (tops.length >= FEW) this.sort();
  }

  private sort(): void {
    const { tops, bottoms } = this;
    const size = tops.length;
    let high = -Infinity;
    for (let place = 0; place < size; place++) {
      if (tops[place] < this.low) this.low = tops[place];
      if (bottoms[place] > high) high = bottoms[place];
    }
    this.count = Math.ceil(size / IN_A_BAND);
    this.height = Math.max((high - this.low) / this.count, 1e-6);
    const starts = (this.starts = new Int32Array(this.count + 1));
    const [from, to] = [tops, bottoms].map((edges) => Int32Array.from(edges, (y) => this.bandOf(y)));
    const isTall = (place: number): boolean => to[place] - from[place] >= MANY_BANDS;
    for (let place = 0; place < size; place++) {
      if (isTall(place)) this.tall.push(place);
      else for (let band = from[place]; band <= to[place]; band++) starts[band + 1]++;
    }
    for (let band = 0; band < this.count; band++) starts[band + 1] += starts[band];
    const next = starts.slice();
    this.members = new Int32Array(starts[this.count]);
    for (let place = 0; place < size; place++) {
      if (!isTall(place)) for (let band = from[place]; band <= to[place]; band++) this.members[next[band]++] = place;
    }
  }

  /** What reaches into the heights from `top` to `bottom`, in the list's order; of more than `most`, some. */
  within(top: number, bottom: number, most = Infinity): number[] {
    const { tops, bottoms, count } = this;
    const meets = (place: number): boolean => bottoms[place] >= top && tops[place] <= bottom;
    const places: number[] = [];
    if (!count) {
      for (let place = 0; place < tops.length; place++) if (meets(place)) places.push(place);
      return places;
    }
    for (const place of this.tall) places.push(place);
    const [from, to] = [this.starts[this.bandOf(top)], this.starts[this.bandOf(bottom) + 1]];
    const step = Math.max(1, Math.ceil((to - from) / most));
    for (let at = from; at < to; at += step) places.push(this.members[at]);
    places.sort((a, b) => a - b);
    return places.filter((place, i) => place !== places[i - 1] && meets(place));
  }

  private bandOf(y: number): number {
    return Math.min(this.count - 1, Math.max(0, Math.floor((y - this.low) / this.height)));
  }
}
