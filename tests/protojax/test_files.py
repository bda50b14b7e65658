"""Files are written whole, and only where they are meant to be."""

from protojax.files import write_whole


def test_what_an_interrupted_write_or_somebody_else_left_is_not_written_through(tmp_path):
    victim = tmp_path / 'victim'
    victim.write_text('precious')
    (tmp_path / '.notes.json.tmp').symlink_to(victim)
    write_whole(tmp_path / 'notes.json', 'new')
    assert (tmp_path / 'notes.json').read_text() == 'new' and victim.read_text() == 'precious'
    assert not (tmp_path / 'notes.json').is_symlink()
    assert sorted(path.name for path in tmp_path.iterdir()) == ['notes.json', 'victim']
