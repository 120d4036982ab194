// Search without a server: browsers start no workers on pages that are opened as files, so a hidden frame takes the
// place of one. MkDocs-Material would load such a script from the network; this one lies beside the pages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = Object.assign(document.createElement("iframe"), { hidden: true });
      document.body.append(frame);
      const inside = frame.contentWindow;
      this.ready = new Promise((done) => {
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        inside.importScripts = (...names) => names.reduce((before, name) => before.then(() => load(name)), Promise.resolve());
        const load = (name) =>
          new Promise((loaded, failed) => {
            const script = Object.assign(inside.document.createElement("script"), { src: name, onload: loaded, onerror: failed });
            inside.document.head.append(script);
          });
        load(url).then(done);
      });
      this.inside = inside;
    }

    postMessage(data) {
      this.ready.then(() => this.inside.dispatchEvent(new this.inside.MessageEvent("message", { data })));
    }

    terminate() {
      this.inside.frameElement.remove();
    }
  };
}
