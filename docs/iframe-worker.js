// The search of the site in pages that are opened as files. Browsers start no worker from a file, so the script
// of the search runs in a hidden frame. mkdocs.yml names this file among the polyfills: Material for MkDocs would fetch another.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.body.appendChild(document.createElement("iframe"));
      frame.hidden = true;
      this.scope = frame.contentWindow;
      this.loaded = new Promise((resolve) => frame.addEventListener("load", resolve));
      const page = frame.contentDocument;
      page.open();
      this.scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      page.write(`<script src="${url}"></script>`);
      page.close();
    }

    postMessage(data) {
      this.loaded.then(() => this.scope.dispatchEvent(new MessageEvent("message", { data })));
    }
  };
}
