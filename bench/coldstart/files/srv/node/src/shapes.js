export function area(shape) {
  return shape.kind === 'circle' ? Math.PI * shape.radius ** 2 : shape.side ** 2;
}

export function perimeter(shape) {
  return shape.kind === 'circle' ? 2 * Math.PI * shape.radius : 4 * shape.side;
}
