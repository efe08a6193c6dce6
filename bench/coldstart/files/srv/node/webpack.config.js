module.exports = {
  mode: 'production',
  entry: '/srv/node/src/index.js',
  output: { path: '/tmp/webpack', filename: 'bundle.js' },
};
