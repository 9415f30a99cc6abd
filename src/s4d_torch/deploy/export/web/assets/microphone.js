"use strict";
// The microphone as blocks of samples, by an audio worklet; its script is a part of this page.

const WORKLET = `registerProcessor("blocks", class extends AudioWorkletProcessor {
  constructor() {
    super();
    this.blocks = [];
  }
  process([[channel]]) {
    if (channel) this.blocks.push(channel.slice());
    if (this.blocks.length === 4) {
      this.port.postMessage(this.blocks);
      this.blocks = [];
    }
    return true;
  }
});`;

class Microphone {
  constructor(onBlock) {
    this.onBlock = onBlock;
  }

  // Resolves with the sampling rate; an error says what a visitor can do.
  async start() {
    if (!navigator.mediaDevices)
      throw new Error("this browser gives no microphone to this page; open it as a file or over https");
    this.stream = await navigator.mediaDevices.getUserMedia({
      // what is meant for telephone calls would change what the model hears
      audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    }).catch((error) => {
      throw new Error(error.name === "NotFoundError" ? "there is no microphone"
        : "the browser was not allowed to use the microphone; allow it for this page");
    });
    this.context = new AudioContext();
    // an address of its own text: a page that was opened as a file may not load a blob
    await this.context.audioWorklet.addModule(`data:text/javascript,${encodeURIComponent(WORKLET)}`);
    await this.context.resume();
    const node = new AudioWorkletNode(this.context, "blocks", { numberOfOutputs: 0 });
    node.port.onmessage = ({ data }) => {
      const all = new Float32Array(data.reduce((sum, each) => sum + each.length, 0));
      let at = 0;
      for (const each of data) { all.set(each, at); at += each.length; }
      this.onBlock(all);
    };
    this.context.createMediaStreamSource(this.stream).connect(node);
    return this.context.sampleRate;
  }

  async stop() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    await this.context?.close();
    this.stream = this.context = null;
  }
}
