// Browsers start no worker for pages that are opened as files. There, a hidden frame runs the script of the search.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(frame);
      const inner = frame.contentWindow;
      const load = (address) => new Promise((done, failed) => {
        const script = inner.document.createElement("script");
        Object.assign(script, { src: address, onload: done, onerror: failed });
        inner.document.body.append(script);
      });
      // What the script calls as a worker: it answers by `postMessage`, and may load others.
      inner.postMessage = (data) => setTimeout(() => this.dispatchEvent(new MessageEvent("message", { data })));
      inner.importScripts = (...urls) => urls.reduce((before, one) => before.then(() => load(one)), Promise.resolve());
      this.inner = inner;
      this.ready = load(new URL(url, document.baseURI).href);
    }

    postMessage(data) {
      this.ready.then(() => this.inner.dispatchEvent(new MessageEvent("message", { data })));
    }

    terminate() {
      this.inner.frameElement.remove();
    }
  };
}
