// OpenChemLib's editor, loaded when the page has shown its first answer. What is drawn becomes SMILES.

let ready = null; // promise of the editor
let shown = ""; // SMILES in the editor

/** Loads the editor into an element once; `tell` is called with the SMILES of each change. */
export function loadEditor(place, tell) {
  ready ??= import("./openchemlib.js").then((OCL) => {
    const editor = new OCL.CanvasEditor(place);
    editor.setOnChangeListener((event) => {
      if (event.type !== "molecule" || !event.isUserEvent) return;
      const smiles = editor.getMolecule().toIsomericSmiles();
      if (smiles === shown) return;
      shown = smiles;
      tell(smiles);
    });
    let waiting = 0; // a place of another size: the molecule moves to its middle
    new ResizeObserver(() => {
      clearTimeout(waiting);
      waiting = setTimeout(() => shown && editor.setMolecule(OCL.Molecule.fromSmiles(shown)), 300);
    }).observe(place);
    place.dataset.ready = "true";
    return { OCL, editor };
  });
  return ready;
}

/** Shows a SMILES in the editor, unless it came from there; one that is not finished is left out. */
export async function showInEditor(smiles) {
  if (ready === null || smiles === shown) return;
  const { OCL, editor } = await ready;
  try {
    const molecule = smiles ? OCL.Molecule.fromSmiles(smiles) : new OCL.Molecule(0, 0);
    shown = smiles;
    editor.setMolecule(molecule);
  } catch {
    // the server says what is wrong with it
  }
}
