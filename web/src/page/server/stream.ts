// The connection to the server that reports changes; it is restored when it breaks.

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

/** Return the milliseconds to wait before attempt number `attempts`: half a second, doubled each time, at most fifteen. */
export function backoff(attempts: number): number {
  return Math.min(15_000, 500 * 2 ** attempts);
}

/** Receive changes until the returned function is called. The browser's own retry is not used, because it never slows down. */
export function subscribe(url: string, { onopen, onchange, onlost }: Handlers): () => void {
  let source: EventSource | null = null;
  let timer = 0;
  let attempts = 0;
  const connect = (): void => {
    source = new EventSource(url);
    source.onopen = () => {
      attempts = 0;
      onopen();
    };
    source.addEventListener("change", (event) => onchange(JSON.parse((event as MessageEvent<string>).data) as Change));
    source.onerror = () => {
      source?.close();
      onlost();
      timer = window.setTimeout(connect, backoff(attempts++));
    };
  };
  connect();
  return () => {
    window.clearTimeout(timer);
    source?.close();
  };
}
