// Text widths in the page's font, each measured once.
export function measurer(host: HTMLElement): (text: string, size: number, bold: boolean) => number {
  const ctx = document.createElement("canvas").getContext("2d")!;
  const font = getComputedStyle(host).getPropertyValue("--font") || "sans-serif";
  const known = new Map<string, number>();
  return (text, size, bold) => {
    if (!text) return 0;
    const key = `${size}${bold}${text}`;
    let width = known.get(key);
    if (width === undefined) {
      ctx.font = `${bold ? "600 " : ""}${size}px ${font}`;
      known.set(key, (width = ctx.measureText(text).width));
    }
    return width;
  };
}
