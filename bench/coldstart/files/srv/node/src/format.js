export const format = (kind, area, perimeter) =>
  `${kind}: area ${area.toFixed(2)}, perimeter ${perimeter.toFixed(2)}`;
