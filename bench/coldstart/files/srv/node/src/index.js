import { area, perimeter } from './shapes.js';
import { format } from './format.js';

const shapes = [{ kind: 'circle', radius: 2 }, { kind: 'square', side: 3 }];
for (const shape of shapes) {
  console.log(format(shape.kind, area(shape), perimeter(shape)));
}
