// The line to the server: events as they come, and patience when it is gone.

export interface Change {
  change: number;
  what: string[];
  runs: [string, string][];
}

export interface Handlers {
  onopen: () => void;
  onchange: (change: Change) => void;
  onlost: () => void;
}

/** Milliseconds before try number `tries`: doubling from half a second, never over fifteen. Pure. */
export function backoff(tries: number): number {
  return Math.min(15_000, 500 * 2 ** tries);
}

/** Listen until the returned function is called. The browser's own retry is not used: it never slows down. */
export function listen(url: string, { onopen, onchange, onlost }: Handlers): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  let tries = 0;
  const connect = (): void => {
    source = new EventSource(url);
    source.onopen = () => {
      tries = 0;
      onopen();
    };
    source.addEventListener("change", (event) => onchange(JSON.parse((event as MessageEvent<string>).data) as Change));
    source.onerror = () => {
      source?.close();
      onlost();
      timer = window.setTimeout(connect, backoff(tries++));
    };
  };
  connect();
  return () => {
    window.clearTimeout(timer);
    source?.close();
  };
}
