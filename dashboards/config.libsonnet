// What a site may want to change; everything else is in weft.jsonnet.
{
  uid: 'weft-fabric-and-jobs',
  title: 'Weft: fabric and jobs',
  tags: ['weft'],
  refresh: '5s',
  from: 'now-15m',
  // The default data source of the variable at the top of the dashboard: a name, or 'default' for Grafana's own.
  datasource: 'default',
}
