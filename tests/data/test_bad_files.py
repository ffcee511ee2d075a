"""Files that are no video, or half of one: each is named with its cause, or gives what is left of it."""

import os
import socket
import tempfile
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest

from vcycle.data.video import VideoError, container, probe, read_frames
from vcycle.data.video.writing import written_video

MJPEG = {"codec": "mjpeg", "options": {"strict": "unofficial"}}


def cause_of(path):
    with pytest.raises(VideoError) as caught:
        probe(str(path))
    assert "\n" not in str(caught.value)
    assert caught.value.path == str(path)
    return caught.value.cause


def write_picture(path, codec):
    with av.open(str(path), "w", format="image2") as container:
        stream = container.add_stream(codec, options={"strict": "unofficial"})
        stream.width, stream.height = 64, 48
        stream.pix_fmt = "rgb24" if codec == "png" else "yuvj420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), dtype=np.uint8), format="rgb24")
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def test_an_empty_file_is_called_so(tmp_path):
    (tmp_path / "a.mp4").touch()
    assert cause_of(tmp_path / "a.mp4") == "an empty file"


@pytest.mark.parametrize(
    "content", [b"no video at all\n" * 50, bytes(range(256)) * 40, b"\0" * 5000, b"\x1aE\xdf\xa3", b"RIFF"]
)
def test_what_is_no_video_is_refused(tmp_path, content):
    (tmp_path / "a.mp4").write_bytes(content)
    assert cause_of(tmp_path / "a.mp4")


def test_a_named_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.mp4")
    assert cause_of(tmp_path / "a.mp4") == "a named pipe, not a video"


def test_folders_sockets_devices_and_nothing_are_told_apart(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the path of a socket must be short
    (tmp_path / "a.mp4").mkdir()
    assert cause_of("a.mp4") == "a folder, not a video"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("b.mp4")
        assert cause_of("b.mp4") == "a socket, not a video"
    assert cause_of("/dev/zero") == "a device, not a video"
    assert cause_of("c.mp4") == "No such file or directory"
    assert "null" in cause_of("a\0b.mp4")


def test_a_link_that_leads_to_itself_is_refused(tmp_path):
    (tmp_path / "a.mp4").symlink_to("b.mp4")
    (tmp_path / "b.mp4").symlink_to("a.mp4")
    assert cause_of(tmp_path / "a.mp4") == "Too many levels of symbolic links"


def test_a_file_without_permission_is_refused(write_video):
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = write_video(Path(folder) / "a.mp4", 3)
        path.chmod(0)
        if os.geteuid():
            assert cause_of(path) == "Permission denied"
            return
        # What the superuser may not is tried by somebody else.
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.setuid(65534)
                probe(str(path))
            except VideoError as error:
                status = 0 if error.cause == "Permission denied" else 2
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_sound_alone_is_no_video(tmp_path):
    with av.open(str(tmp_path / "a.mp4"), "w") as container:
        stream = container.add_stream("aac", rate=8000)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4096), dtype=np.float32), format="fltp", layout="mono")
        frame.sample_rate = 8000
        container.mux(stream.encode(frame))
        container.mux(stream.encode())
    assert cause_of(tmp_path / "a.mp4") == "no video stream"


@pytest.mark.parametrize("codec", ["mjpeg", "png"])
def test_a_picture_with_a_videos_name_is_refused(tmp_path, codec):
    picture = write_picture(tmp_path / "a.jpg", codec)
    for name in ("b.mp4", "c%03d.mp4", "d.jpg"):
        assert cause_of(picture.rename(tmp_path / name)) == "a still image, not a video"
        picture = tmp_path / name


LIVE = "#EXTM3U\n#EXT-X-VERSION:3\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{}\n"
MANIFEST = """<?xml version="1.0"?>
<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static" mediaPresentationDuration="PT4S" minBufferTime="PT1S"
 profiles="urn:mpeg:dash:profile:isoff-on-demand:2011"><Period><AdaptationSet mimeType="video/mp4">
<Representation id="1" bandwidth="1"><BaseURL>{}</BaseURL></Representation></AdaptationSet></Period></MPD>"""
SESSION = "v=0\no=- 0 0 IN IP4 127.0.0.1\ns=a\nc=IN IP4 127.0.0.1\nt=0 0\nm=video 5004 RTP/AVP 96\na=control:{}\n"
NAMING = {
    "an HLS playlist": LIVE,
    "an HLS playlist that ends": LIVE + "#EXT-X-ENDLIST\n",
    "an ffconcat list": "ffconcat version 1.0\nfile '{}'\n",
    "a DASH manifest": MANIFEST,
    "an SDP description": SESSION,
    "an IMF playlist": '<?xml version="1.0"?>\n<CompositionPlaylist><Id>{}</Id></CompositionPlaylist>\n',
}


@pytest.mark.parametrize("name", ["a.mp4", "a.m3u8", "a.ffconcat", "a.mpd", "a.sdp"])
@pytest.mark.parametrize("kind", NAMING)
def test_a_file_that_names_others_is_refused_by_name_and_opens_none(tmp_path, write_video, kind, name):
    outside = write_video(tmp_path / "outside/secret.ts", 12)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        server.setblocking(False)
        for target in (str(outside), "outside/secret.ts", f"http://127.0.0.1:{server.getsockname()[1]}/secret.ts"):
            (tmp_path / name).write_text(NAMING[kind].format(target))
            assert cause_of(tmp_path / name) == (
                f"{kind.removesuffix(' that ends')}, which names other files: "
                "only a file that holds its frames itself is read"
            )
        with pytest.raises(BlockingIOError):
            server.accept()


def test_the_sound_of_a_file_that_names_others_is_not_read(tmp_path, write_video):
    outside = write_video(tmp_path / "secret.ts", 12)
    (tmp_path / "a.m3u8").write_text(LIVE.format(outside))
    clock = Fraction(1, 25)
    with (
        pytest.raises(VideoError, match="an HLS playlist"),
        written_video(tmp_path / "b.mkv", size=(48, 64), clock=clock, rate=25, sound_of=str(tmp_path / "a.m3u8")),
    ):
        pass
    assert not (tmp_path / "b.mkv").exists()


def test_a_pattern_of_pictures_is_no_video(tmp_path):
    for number in range(3):
        write_picture(tmp_path / f"{number}.jpg", "mjpeg")
    write_picture(tmp_path / "9.jpg", "mjpeg").rename(tmp_path / "%d.jpg")
    assert cause_of(tmp_path / "%d.jpg") == "a still image, not a video"


def test_of_the_formats_that_are_accepted_none_names_other_files():
    accepted = set(container._accepted_formats().split(","))
    assert accepted >= {"mov", "matroska", "avi", "mpegts", "flv", "gif", "asf", "ogg", "nut", "ivf", "mxf"}
    assert not accepted & {"hls", "concat", "dash", "imf", "sdp", "rtsp", "image2", "image2pipe", "lavfi", "vobsub"}


@pytest.mark.parametrize("suffix", [".txt", ".nfo", ".ans"])
def test_text_that_ffmpeg_would_draw_on_a_terminal_is_refused(tmp_path, suffix):
    (tmp_path / f"notes{suffix}").write_text("some words\n" * 50)
    assert cause_of(tmp_path / f"notes{suffix}") == "text, not a video"


@pytest.mark.parametrize("suffix", [".avi", ".txt", ".jpg", ""])
def test_a_wrong_extension_does_no_harm(tmp_path, write_video, read_number, suffix):
    path = write_video(tmp_path / "a.mp4", 20).rename(tmp_path / f"b{suffix}")
    assert read_number(read_frames(probe(str(path)), [17]).pixels[0]) == 17


@pytest.mark.parametrize(
    "name", ["two words.mp4", "Größe 動画 🎬.mp4", "rtp:a.mp4", "http:\\x.mp4", "a%03d.mp4", "-i.mp4", "?[*].mp4"]
)
def test_any_name_is_read_from_any_folder(tmp_path, write_video, read_number, monkeypatch, name):
    write_video(tmp_path / "a.mp4", 20).rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    for path in (name, str(tmp_path / name)):
        assert read_number(read_frames(probe(path), [17]).pixels[0]) == 17


def test_a_name_in_another_encoding_is_read_and_can_be_printed(tmp_path, write_video, read_number):
    name = os.fsdecode(os.fsencode(tmp_path) + b"/gr\xf6sse.mp4")
    os.rename(write_video(tmp_path / "a.mp4", 20), name)
    index = probe(name)
    assert read_number(read_frames(index, [17]).pixels[0]) == 17
    os.unlink(name)
    with pytest.raises(VideoError, match="No such file") as caught:
        read_frames(index, [17])
    str(caught.value).encode()


def test_metadata_in_another_encoding_does_no_harm(tmp_path, write_video, read_number):
    path = write_video(tmp_path / "a.mkv", 20)
    content = path.read_bytes()
    assert b"Lavf" in content
    path.write_bytes(content.replace(b"Lavf", b"\xe4\xf6\xfc\xdf"))
    assert read_number(read_frames(probe(str(path)), [17]).pixels[0]) == 17


def test_a_header_that_promises_more_frames_is_not_believed(tmp_path, write_video, read_number):
    path = write_video(tmp_path / "a.avi", 12, **MJPEG)
    content = bytearray(path.read_bytes())
    at = content.index(b"avih") + 8 + 16  # the main header's total of frames
    assert int.from_bytes(content[at : at + 4], "little") == 12
    content[at : at + 4] = (9999).to_bytes(4, "little")
    path.write_bytes(content)
    index = probe(str(path))
    assert index.info.frames == 12
    assert read_number(read_frames(index, [11]).pixels[0]) == 11


CUT = {
    "mp4": ("mp4", {"muxing": {"movflags": "faststart"}}),
    "mp4, fragments": ("mp4", {"muxing": {"movflags": "frag_keyframe+empty_moov"}}),
    "mp4, table behind": ("mp4", {}),
    "mkv": ("mkv", {}),
    "avi": ("avi", MJPEG),
    "ts": ("ts", {}),
    "mpg": ("mpg", {"codec": "mpeg2video", "options": {"bf": "0", "g": "12"}}),
    "raw": ("h264", {"options": {"bf": "0"}}),
}


@pytest.mark.parametrize("kind", CUT)
def test_a_file_cut_anywhere_gives_right_frames_or_says_which_are_not(tmp_path, write_video, read_number, kind):
    suffix, options = CUT[kind]
    whole = write_video(tmp_path / f"whole.{suffix}", 36, **options).read_bytes()
    path = tmp_path / f"cut.{suffix}"
    most = 0
    for size in np.linspace(1, len(whole) - 1, 40).astype(int):
        path.write_bytes(whole[:size])
        try:
            index = probe(str(path))
            decoded = read_frames(index, range(index.info.frames))
        except VideoError as error:
            assert error.cause  # noqa: PT017
            continue
        assert index.info.frames <= 36
        # Packets lie in another order than frames: of the last frames that are left, some are missing between.
        numbers = np.rint(index.info.times * 25).astype(int)
        wrong = np.array([read_number(pixels) for pixels in decoded.pixels]) != numbers
        assert not wrong[~decoded.filled].any(), size
        most = max(most, int((~decoded.filled).sum()))
    assert most > 24 or kind == "mp4, table behind"


@pytest.mark.parametrize("kind", CUT)
def test_flipped_bytes_neither_crash_nor_hang(tmp_path, write_video, kind):
    suffix, options = CUT[kind]
    whole = write_video(tmp_path / f"whole.{suffix}", 36, **options).read_bytes()
    path = tmp_path / f"flipped.{suffix}"
    generator = np.random.default_rng(0)
    for _ in range(40):
        content = bytearray(whole)
        for at in generator.integers(len(content), size=4).tolist():
            content[at] ^= int(generator.integers(1, 256))
        path.write_bytes(content)
        try:
            index = probe(str(path))
            wanted = np.linspace(0, index.info.frames - 1, 6).astype(int)
            decoded = read_frames(index, wanted, height=24, width=32)
        except VideoError:
            continue
        assert decoded.pixels.shape == (6, 24, 32, 3)


def test_a_broken_picture_is_reported_up_to_the_next_keyframe(tmp_path, write_video, read_number):
    path = write_video(tmp_path / "a.mkv", 36, options={"bf": "0", "g": "12"})
    with av.open(str(path)) as container:
        payload = [bytes(packet) for packet in container.demux(video=0) if packet.size][15]
    broken = payload[:6] + b"\xff" * (len(payload) - 6)
    path.write_bytes(path.read_bytes().replace(payload, broken))
    index = probe(str(path))
    for wanted in (range(36), range(10, 30)):
        decoded = read_frames(index, wanted)
        assert np.array(wanted)[decoded.filled].tolist() == list(range(15, 24))
        whole = [number for number in wanted if not 15 <= number < 24]
        assert [read_number(decoded.pixels[number - wanted[0]]) for number in whole] == whole


def test_a_file_deleted_after_it_was_indexed_is_named(tmp_path, write_video):
    index = probe(str(write_video(tmp_path / "a.mp4")))
    os.unlink(index.path)
    with pytest.raises(VideoError, match="No such file"):
        read_frames(index, [3])


def test_a_file_exchanged_after_it_was_indexed_is_refused(tmp_path, write_video):
    index = probe(str(write_video(tmp_path / "a.mp4")))
    write_video(tmp_path / "b.mp4", options={"g": "5"}).rename(index.path)
    with pytest.raises(VideoError, match="has changed since it was indexed"):
        read_frames(index, [3])


def test_decoding_leaves_no_file_open_and_no_memory_behind(tmp_path, write_video):
    good = probe(str(write_video(tmp_path / "a.mp4", 24)))
    counted = probe(str(write_video(tmp_path / "a.avi", 24, **MJPEG)))
    cut = write_video(tmp_path / "cut.mkv", 24)
    cut.write_bytes(cut.read_bytes()[:200])

    def round_of(count):
        for number in range(count):
            read_frames(good, [number % 20, 22], height=96, width=128)
            read_frames(counted, [number % 20])
            with pytest.raises(VideoError):
                probe(str(cut))

    round_of(100)
    files, memory = len(os.listdir("/proc/self/fd")), resident_bytes()
    round_of(500)
    assert len(os.listdir("/proc/self/fd")) == files
    assert resident_bytes() - memory < 10e6


def resident_bytes():
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
