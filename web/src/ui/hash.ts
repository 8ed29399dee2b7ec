// The hash of the address bar. It names what is shown, so that the address can be shared as a link.

/** Return the query in a hash. */
export const queryOf = (hash: string): URLSearchParams => new URLSearchParams(hash.replace(/^#/, ""));

const [DELAY, INTERVAL] = [20, 150]; // milliseconds before the address is updated, and between two updates

let [timer, lastUpdate] = [0, 0];

/** Write a hash into the address bar without a new entry in the history. The update is delayed, so that it does not delay
 * drawing, and limited in rate, because Safari refuses more than a hundred in ten seconds. It is dropped if something else
 * changed the address meanwhile. */
export function writeHash(hash: string): void {
  const before = location.hash;
  clearTimeout(timer);
  timer = window.setTimeout(() => {
    if (location.hash !== before || hash === before) return;
    lastUpdate = performance.now();
    try {
      history.replaceState(null, "", hash);
    } catch {
      // the iframe of a notebook cell has no address
    }
  }, Math.max(DELAY, lastUpdate + INTERVAL - performance.now()));
}
